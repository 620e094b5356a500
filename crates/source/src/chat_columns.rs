//! Chooses the columns of conversations: texts of JSON, which are read as documents are, or lists of structs.
//!
//! Of lists and structs all arrays are requested, but for fields of types that JSON does not have. Texts in
//! the lists of a column are JSON: `datasets` has messages and tools of unlike fields so.

use arrow_schema::{DataType, Field, Schema};

use crate::{
    Error, ErrorKind, Result,
    columns::{
        ArrayColumns, ChatColumns, FeatureCache, Item, Nesting, OtherChatColumns, PairColumns, ValueLayout,
        find, item_of, layout_of, listed, nesting_of, shortened,
    },
    fields,
    nested::{DEEPEST, EXTENSION, NestedColumn, NestedField, NestedKind, NestedValues},
};

impl ArrayColumns {
    /// Chooses the columns of conversations: of texts as those of documents, else of lists.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if there is no such column, or its type holds no conversations or no tools.
    pub(crate) fn choose_chat(
        &mut self,
        schema: &Schema,
        ChatColumns { messages, beside }: &ChatColumns,
        cache: &FeatureCache,
    ) -> Result<()> {
        let tools = match beside {
            OtherChatColumns::Tools(tools) => tools,
            OtherChatColumns::Pair(pair) => return self.choose_pair(schema, messages, pair, cache),
        };
        let (path, field) = found(schema, "column of forebay.text.Chat", messages)?;
        match item_of(field.data_type()) {
            Some(Item::Text) if path.len() == 1 => self.choose_text(schema, messages)?,
            _ => {
                check_messages(schema, messages, field)?;
                self.messages = Some(self.nested(messages, path, field, cache)?);
            }
        }
        if let Some(tools) = tools {
            let (path, field) = found(schema, "tools of forebay.text.Chat", tools)?;
            let is_right = match field.data_type() {
                DataType::Null => return Ok(()),
                DataType::Struct(_) => true,
                data_type => item_of(data_type) == Some(Item::Text) || nesting_of(field).0 != Nesting::One,
            };
            if !is_right {
                let message = format!(
                    "column {tools:?} is {} and holds no tools; expected lists of structs, or texts of JSON; {}",
                    shortened(field.data_type()),
                    listed(schema),
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
            let mut tools = self.nested(tools, path, field, cache)?;
            tools.values.leave_out_nulls();
            self.beside.push(tools);
        }
        Ok(())
    }

    /// Chooses the columns of pairs: of texts and of lists alike as values of JSON.
    fn choose_pair(
        &mut self,
        schema: &Schema,
        chosen: &str,
        PairColumns { rejected, prompt }: &PairColumns,
        cache: &FeatureCache,
    ) -> Result<()> {
        let mut column = |parameter: &str, name: &str| {
            let (path, field) = found(schema, &format!("{parameter} of forebay.text.Pairs"), name)?;
            if item_of(field.data_type()) != Some(Item::Text) {
                check_messages(schema, name, field)?;
            }
            let mut column = self.nested(name, path, field, cache)?;
            if prompt.is_some() && column.values.kind == NestedKind::Json {
                column.values.kind = NestedKind::Text;
            }
            Ok::<_, Error>(column)
        };
        let chosen = column("chosen", chosen)?;
        let mut beside = vec![column("rejected", rejected)?];
        if let Some(prompt) = prompt {
            beside.push(column("prompt", prompt)?);
        }
        (self.messages, self.beside) = (Some(chosen), beside);
        Ok(())
    }

    fn nested(
        &mut self,
        name: &str,
        path: Vec<usize>,
        field: &Field,
        cache: &FeatureCache,
    ) -> Result<NestedColumn> {
        let structs =
            (1..path.len()).map(|end| self.want(path[..end].to_vec(), ValueLayout::Struct)).collect();
        let mut left_out = Vec::new();
        let place = NestedPlace { name: name.to_owned(), path: path.clone(), depth: 0, has_rows: true };
        let values = self.nested_values(field, place, &mut left_out)?.ok_or_else(|| {
            let message = format!(
                "column {name:?} is {}, expected lists and structs of texts, numbers and booleans, at most {DEEPEST} levels deep",
                shortened(field.data_type())
            );
            Error::new(ErrorKind::Schema, message)
        })?;
        if !left_out.is_empty() {
            cache.once(|| {
                log::info!(
                    "fields of other types than texts, numbers, booleans, lists and structs, or deeper than {DEEPEST} levels, are left out of conversations: {}",
                    left_out.join(", ")
                );
            });
        }
        Ok(NestedColumn { name: name.into(), path, structs, values })
    }

    /// The arrays of a field; `None` for a type that JSON does not have.
    fn nested_values(
        &mut self,
        field: &Field,
        place: NestedPlace,
        left_out: &mut Vec<String>,
    ) -> Result<Option<NestedValues>> {
        let NestedPlace { name, path, depth, has_rows } = place;
        if depth == DEEPEST {
            return Ok(None);
        }
        let within = |name: String, at: usize, has_rows: bool| {
            let path = path.iter().copied().chain([at]).collect();
            NestedPlace { name, path, depth: depth + 1, has_rows }
        };
        let kind_and_layout = match field.data_type() {
            DataType::Struct(fields) => {
                let mut kept = Vec::new();
                for (at, child) in fields.iter().enumerate() {
                    let child_name = format!("{name}.{}", child.name());
                    // The fields of messages, which are the items of the column.
                    let is_kept = depth == 1 && child.name() == "content";
                    match self.nested_values(child, within(child_name.clone(), at, has_rows), left_out)? {
                        Some(values) => {
                            kept.push(NestedField {
                                at,
                                name: child.name().as_str().into(),
                                is_kept,
                                values,
                            });
                        }
                        None => left_out.push(format!("{child_name} ({})", shortened(child.data_type()))),
                    }
                }
                Some((NestedKind::Struct(kept), ValueLayout::Struct))
            }
            _ => match nesting_of(field) {
                (nesting, Some((child, layout))) => {
                    let place = within(format!("{name}[]"), 0, false);
                    let fixed = if let Nesting::Fixed(n) = nesting { Some(n) } else { None };
                    let values =
                        self.nested_values(child, place, left_out)?.map(|values| match values.kind {
                            // `datasets` has conversations and tools of unlike fields so.
                            NestedKind::Text if depth == 0 => {
                                NestedValues { kind: NestedKind::Json, ..values }
                            }
                            _ => values,
                        });
                    values.map(|values| (NestedKind::List(fixed, values.into()), layout))
                }
                _ => {
                    let is_json = field.metadata().get(EXTENSION[0]).is_some_and(|name| name == EXTENSION[1]);
                    let kind = item_of(field.data_type()).map(|item| match item {
                        Item::Null => NestedKind::Null,
                        Item::Whole(fields::DataType::Bool) => NestedKind::Bool,
                        Item::Whole(_) => NestedKind::Int,
                        Item::Float(_) => NestedKind::Float,
                        Item::Text if is_json || depth == 0 => NestedKind::Json,
                        Item::Text => NestedKind::Text,
                    });
                    kind.zip(layout_of(field))
                }
            },
        };
        let Some((kind, layout)) = kind_and_layout else { return Ok(None) };
        Ok(Some(NestedValues { array: self.want_nested(path, layout, has_rows), kind }))
    }
}

/// Where an array is in the schema.
struct NestedPlace {
    name: String,
    path: Vec<usize>,
    depth: usize,
    /// Whether it has a value for each row.
    has_rows: bool,
}

/// The column with a name, which is there once.
fn found<'a>(schema: &'a Schema, parameter: &str, name: &str) -> Result<(Vec<usize>, &'a Field)> {
    let wrong = |what: String| Error::new(ErrorKind::Schema, format!("{what}; {}", listed(schema)));
    let (path, field) = find(schema, name)
        .ok_or_else(|| wrong(format!("{parameter} is {name:?}, but there is no such column")))?;
    let root = schema.field(path[0]).name();
    if schema.fields().iter().filter(|field| field.name() == root).count() > 1 {
        return Err(wrong(format!("column {root:?} is there twice; rename one")));
    }
    Ok((path, field))
}

/// Checks that a column may have lists of messages.
fn check_messages(schema: &Schema, name: &str, field: &Field) -> Result<()> {
    let (nesting, items) = nesting_of(field);
    let wrong = |found: String| Err(Error::new(ErrorKind::Schema, format!("{found}; {}", listed(schema))));
    match items.map(|(item, _)| item.data_type()) {
        Some(DataType::Struct(fields)) if fields.find("role").is_none() => {
            let names: Vec<_> = fields.iter().take(20).map(|field| format!("{:?}", field.name())).collect();
            wrong(format!(
                "column {name:?} has lists of structs with {}, expected role and content; rename the fields, as with dataset.map",
                names.join(", ")
            ))
        }
        Some(DataType::Struct(_)) => Ok(()),
        Some(item) if nesting == Nesting::List && item_of(item) == Some(Item::Text) => Ok(()),
        _ => wrong(format!(
            "column {name:?} is {} and holds no conversations; expected lists of structs with role and content, or texts of JSON",
            shortened(field.data_type())
        )),
    }
}
