//! The plan of a target: what its column must hold, its field and its classes. Source: own.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value as Json;

use super::{
    Annotations, ClassSource, ClassVocabulary, FrameColumns, FramesRule, Key, Scan, SequenceRule,
    SourceColumns, Target, TargetConfig, TargetForm,
    classes::{Maps, UNKNOWN},
};
use crate::{
    Error, ErrorKind, Result,
    fields::{DataType, Dim, Field},
    source::{ClassNames, ColumnType, ExtraColumn, Item, NO_LABEL, Nesting},
};

impl Target {
    /// The label of a loader without targets: numbers as they are, or united by name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if class names are not unique.
    pub fn label(value: usize, class_names: &ClassNames) -> Result<Self> {
        let are_same = class_names
            .label
            .iter()
            .flatten()
            .all(|names| Some(names) == class_names.label.iter().flatten().next());
        let mut vocabulary = ClassVocabulary::default();
        if are_same {
            vocabulary.names = class_names.label.iter().flatten().next().cloned();
        } else if let Some(united) = ClassVocabulary::united(&class_names.label, "the label column")? {
            vocabulary = united;
        }
        let config = TargetConfig {
            name: "label".to_owned(),
            column: "label".to_owned(),
            form: TargetForm::Class,
            classes: ClassSource::Any,
            ignores_unknown: false,
            null: Some(NO_LABEL as f64),
            dtype: DataType::Int64,
            description: Json::Null,
        };
        let field = Field::number("label", DataType::Int64);
        let (item, nesting) = (Item::Whole(DataType::Int64), Nesting::One);
        Ok(Self {
            config,
            field,
            item,
            nesting,
            value,
            secondary: None,
            times: None,
            vocabulary,
            is_told: Arc::default(),
        })
    }

    /// Plans a target.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if the column's type does not fit; [`ErrorKind::Config`] if the classes are not
    /// known; those of `scan`.
    pub fn plan(config: TargetConfig, source_columns: &SourceColumns<'_>, scan: Scan<'_>) -> Result<Self> {
        if let Some(all) = config.form.annotations().cloned() {
            return Self::of_annotations(config, &all, source_columns);
        }
        let (number, value, column_type) = source_columns.find(&config.column)?;
        column_type.check_flat(&config.column)?;
        let ColumnType { item, nesting } = column_type;
        let TargetConfig { name, column, dtype, .. } = &config;
        let misfit = |expected: Cow<'_, str>| {
            let message = format!("target {name:?}: column {column:?} is {column_type}, expected {expected}");
            Error::new(ErrorKind::Schema, message)
        };
        if let Some(expected) = expected_instead(&config.form, column_type) {
            return Err(misfit(expected.into()));
        }
        let schema = &source_columns.class_names.others[number];
        let vocabulary = config.column_vocabulary(item, schema, scan)?;
        let secondary = config.secondary_classes(&vocabulary, source_columns)?;
        let n_classes = || {
            vocabulary.n.ok_or_else(|| {
                let message = format!(
                    "target {name:?}: the classes of column {column:?} are not in the schema; give classes, a list of names, a \
                     file, their number, or \"data\""
                );
                Error::new(ErrorKind::Config, message)
            })
        };
        let field = match &config.form {
            TargetForm::Class | TargetForm::Number => Field::number(name, *dtype),
            TargetForm::MultiHot { .. } => Field::stacked(name, *dtype, [n_classes()?]),
            TargetForm::Soft { size } => {
                Field::stacked(name, *dtype, [list_length(nesting, *size).map_err(misfit)?])
            }
            TargetForm::Text { .. } => Field::text(name),
            TargetForm::Tokens(rule) => rule.field(name),
            TargetForm::Frames(rule) => {
                if rule.columns == FrameColumns::Classes {
                    n_classes()?;
                }
                config.check_speakers(&vocabulary)?;
                rule.field(name, vocabulary.n)
            }
            TargetForm::Words(_) => Field { dims: vec![Dim::Ragged; 2], ..Field::text(name) },
            TargetForm::Sequence(rule) => config.sequence_field(item, rule)?,
            TargetForm::Column | TargetForm::Annotations { .. } => column_field(name, column_type),
        };
        let times = config.form.time_columns();
        let times = times.map(|names| time_columns(name, names, source_columns)).transpose()?;
        Ok(Self {
            field,
            item,
            nesting,
            value,
            secondary,
            times,
            vocabulary,
            is_told: Arc::default(),
            config,
        })
    }

    /// Plans a target of annotations; its column is the path of the recording.
    fn of_annotations(
        config: TargetConfig,
        all: &Annotations,
        source_columns: &SourceColumns<'_>,
    ) -> Result<Self> {
        let name = &config.name;
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        let what = format!("target {name:?}: classes");
        let of_clips = match &config.form {
            TargetForm::Frames(FramesRule { columns: FrameColumns::Speakers { is_of_data, .. }, .. }) => {
                Some(*is_of_data)
            }
            _ => None,
        };
        let Some(value) = source_columns.extra_columns.iter().position(|extra| *extra == ExtraColumn::Path)
        else {
            return refused(format!(
                "target {name:?} has annotations, and the rows of the source have no paths"
            ));
        };
        let names = match &config.classes {
            // Each clip has speakers of its own.
            _ if of_clips == Some(false) => Arc::new(vec![String::new()]),
            ClassSource::Names(names) => names.clone(),
            ClassSource::Any | ClassSource::Data if all.labels().is_empty() => {
                return refused(format!(
                    "target {name:?} has no annotations, of which classes could be known; give classes"
                ));
            }
            ClassSource::Any | ClassSource::Data => Arc::new(all.labels().to_vec()),
            ClassSource::Schema | ClassSource::Count(_) => {
                return refused(format!(
                    "{what} of annotations are names; give a list of names, a file, or \"data\""
                ));
            }
        };
        let vocabulary = match of_clips {
            Some(false) => ClassVocabulary::default(),
            _ => ClassVocabulary::of_names(names, &what)?,
        };
        let class = |label: &String| vocabulary.by_key.get(&Key::Name(label.as_str().into())).copied();
        let unknown = all.labels().iter().find(|label| class(label).is_none());
        if let Some(label) = unknown.filter(|_| !config.ignores_unknown && of_clips != Some(false)) {
            return refused(format!(
                "target {name:?}: an annotation has {label:?}, which is no class: {}; add it to classes, or give \
                 unknown=\"ignore\"",
                vocabulary.expected()
            ));
        }
        let classes = all.labels().iter().map(|label| class(label).map_or(UNKNOWN, i64::from)).collect();
        let vocabulary = ClassVocabulary { maps: vec![Some(classes)], ..vocabulary };
        config.check_speakers(&vocabulary)?;
        let field = match &config.form {
            TargetForm::Frames(rule) => rule.field(name, vocabulary.n),
            _ => Field::stacked(name, config.dtype, [vocabulary.n.unwrap_or(1)]),
        };
        Ok(Self {
            config,
            field,
            item: Item::Text,
            nesting: Nesting::One,
            value,
            secondary: None,
            times: None,
            vocabulary,
            is_told: Arc::default(),
        })
    }
}

impl TargetConfig {
    /// The classes of the column, which has `item`s; none of a form without classes.
    fn column_vocabulary(
        &self,
        item: Item,
        schema: &[Option<Arc<Vec<String>>>],
        scan: Scan<'_>,
    ) -> Result<ClassVocabulary> {
        match &self.form {
            TargetForm::Class | TargetForm::MultiHot { .. } => self.vocabulary(item, schema, scan),
            TargetForm::Frames(FramesRule { columns: FrameColumns::Classes, .. }) => {
                self.vocabulary(item, schema, scan)
            }
            TargetForm::Frames(FramesRule {
                columns: FrameColumns::Speakers { is_of_data: true, .. },
                ..
            }) => {
                let is_named = schema.iter().flatten().next().is_some();
                let classes = if is_named { ClassSource::Schema } else { ClassSource::Data };
                Self { classes, ..self.clone() }.vocabulary(item, schema, scan)
            }
            _ => Ok(ClassVocabulary::default()),
        }
    }

    /// The index of the column of further classes among a record's values, and the classes by its numbers.
    fn secondary_classes(
        &self,
        vocabulary: &ClassVocabulary,
        source_columns: &SourceColumns<'_>,
    ) -> Result<Option<(usize, Maps)>> {
        let TargetForm::MultiHot { secondary: Some((column, _)), .. } = &self.form else { return Ok(None) };
        let (number, at, found) = source_columns.find(column)?;
        found.check_flat(column)?;
        let name = &self.name;
        if matches!(found.item, Item::Float(_)) {
            let message = format!(
                "target {name:?}: column {column:?} is {found}, expected whole numbers, text, or lists of these"
            );
            return Err(Error::new(ErrorKind::Schema, message));
        }
        if let (Item::Text, ClassSource::Count(_)) = (found.item, &self.classes) {
            let message = format!(
                "target {name:?}: classes is a number, but column {column:?} has names; give a list of names, a \
                 file, or \"data\""
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        let maps = match vocabulary.names {
            Some(_) => vocabulary.maps_of(&source_columns.class_names.others[number]),
            None => Maps::new(),
        };
        Ok(Some((at, maps)))
    }

    /// The field of a sequence of `item`s, whose padding must be one of them.
    fn sequence_field(&self, item: Item, rule: &SequenceRule) -> Result<Field> {
        let (Self { name, column, .. }, pad) = (self, rule.pad);
        let (dtype, fill) = match item {
            Item::Float(_) => (DataType::Float32, (pad as f32).to_ne_bytes().to_vec()),
            _ if pad.fract() == 0.0 => (DataType::Int64, (pad as i64).to_ne_bytes().to_vec()),
            _ => {
                let message = format!(
                    "target {name:?}: pad is {pad:?}, and column {column:?} has whole numbers; give a whole number"
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
        };
        Ok(Field { fill: fill.into(), ..Field::new(name, dtype, vec![Dim::Fixed(0)]) })
    }
}

/// What a target is made of, if a column is something else; [`list_length`] tells lists of other lengths.
fn expected_instead(form: &TargetForm, ColumnType { item, nesting }: ColumnType) -> Option<&'static str> {
    let is_one = nesting == Nesting::One;
    let is_text = matches!(item, Item::Text | Item::Null);
    let is_real = matches!(item, Item::Float(_));
    Some(match form {
        TargetForm::Class if !is_one || is_real => {
            "whole numbers or text; forebay.targets.MultiHot takes lists"
        }
        TargetForm::MultiHot { .. } if is_real => {
            "whole numbers, text, or lists of these; forebay.targets.Soft takes vectors"
        }
        // A csv whose cells have a number each has numbers.
        TargetForm::MultiHot { separator: Some(_), .. } if !is_one => "text, since a separator is given",
        TargetForm::Soft { .. } if is_one || item == Item::Text => "lists of numbers",
        TargetForm::Number if !is_one || item == Item::Text => "numbers; forebay.targets.Soft takes lists",
        TargetForm::Tokens(rule) if rule.times.is_some() => match is_one || !is_text {
            true => "lists of text",
            false => return None,
        },
        TargetForm::Text { .. } | TargetForm::Tokens(_) if is_one && matches!(item, Item::Whole(_)) => {
            "text; a column of a table whose cells are all numbers, or true and false, is read as such: give the \
             table as a DataFrame or Parquet file with texts"
        }
        TargetForm::Text { .. } | TargetForm::Tokens(_) if !is_one || !is_text => "text",
        TargetForm::Frames(_) if is_one || is_real => "lists of text or of whole numbers",
        TargetForm::Words(_) if is_one || !is_text => "lists of text",
        TargetForm::Sequence(_) if is_one || item == Item::Text => "lists of numbers",
        _ => return None,
    })
}

/// The length of lists, by the schema or by `size`; otherwise what was expected.
fn list_length(nesting: Nesting, size: Option<u64>) -> Result<u64, Cow<'static, str>> {
    match (nesting, size) {
        (Nesting::Fixed(n), Some(size)) if n != size => {
            Err(format!("lists of {size}, since size is {size}").into())
        }
        (Nesting::Fixed(n), _) | (_, Some(n)) => Ok(n),
        (_, None) => Err("lists of one length in the schema, or size=, their length".into()),
    }
}

/// The indices of the columns of starts and ends.
fn time_columns(target: &str, names: &[String; 2], source_columns: &SourceColumns<'_>) -> Result<[usize; 2]> {
    let mut found = [0; 2];
    for (place, name) in found.iter_mut().zip(names) {
        let (_, at, column) = source_columns.find(name)?;
        if column.nesting == Nesting::One || column.nesting == Nesting::Pairs || column.item == Item::Text {
            let message =
                format!("target {target:?}: column {name:?} is {column}, expected lists of seconds");
            return Err(Error::new(ErrorKind::Schema, message));
        }
        *place = at;
    }
    Ok(found)
}

/// The field of a column that is passed through.
fn column_field(name: &str, ColumnType { item, nesting }: ColumnType) -> Field {
    let dtype = match item {
        Item::Whole(dtype) | Item::Float(dtype) => dtype,
        Item::Null => DataType::Float64,
        Item::Text => {
            let text = Field::text(name);
            return if nesting == Nesting::One { text } else { Field { dims: vec![Dim::Ragged; 2], ..text } };
        }
    };
    match nesting {
        Nesting::One => Field::number(name, dtype),
        Nesting::List | Nesting::Pairs => Field::jagged(name, dtype, 1),
        Nesting::Fixed(n) => Field::stacked(name, dtype, [n]),
    }
}
