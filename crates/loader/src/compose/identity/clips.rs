//! [`ClipIdentity`]. Source: own.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::{
    ClipIdentity as IdentityInputs, digest, hex, identity_entry, members, parameter_identity, rows_identity,
};
use crate::{
    LoaderConfig,
    compose::{OtherSource, Partnering},
    config::{AugmentObject, OrderChoice},
    order::WeightedRows,
    source::{Positions, Recordings},
    state::{DefaultOrder, Identity, Share},
    tasks::{AudioPlan, Outputs},
};

/// The values on which the batches of a loader of recordings depend.
pub struct ClipIdentity<'a> {
    pub config: &'a LoaderConfig,
    pub order: &'a OrderChoice,
    pub audio: &'a AudioPlan,
    pub source: &'a Recordings,
    pub outputs: &'a Outputs,
    pub exclude: &'a [u64],
    /// The recordings that steps of augmentation read.
    pub backgrounds: &'a [Partnering],
    /// The recordings of rows besides their first.
    pub others: &'a [OtherSource],
    pub positions: &'a Positions,
    /// The weights of the positions, for each source.
    pub weights: Option<&'a [Arc<WeightedRows>]>,
    /// A hash of the lengths of the positions, if batches depend on them.
    pub lengths: Option<u64>,
}

crate::loader_parameters!(parameter_identity);

impl ClipIdentity<'_> {
    pub fn identity(&self) -> Identity {
        let Self { config, source, .. } = self;
        let mut data = Map::new();
        data.insert("num_shards".into(), source.shards().len().into());
        data.insert("num_records".into(), source.n_rows().into());
        data.insert("fingerprint".into(), hex(source.fingerprint()));
        let share = Share { rank: config.rank as u64, world_size: config.world_size as u64 };
        let default_order = self.order.reason.clone().map(|reason| {
            let unused = [("shuffle_min_size", self.window()), ("era_length", config.era_length.into())];
            DefaultOrder {
                reason,
                unused: unused.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
            }
        });
        let config = self.entries();
        let before = [
            ("fingerprint", Some(hex(source.former_fingerprint()))),
            ("augment", self.augmented(Recordings::former_fingerprint)),
        ];
        let mut former = Map::new();
        for (name, value) in before {
            if let Some(value) =
                value.filter(|value| [&data, &config].iter().all(|now| now.get(name) != Some(value)))
            {
                former.insert(name.into(), value);
            }
        }
        let names = BTreeMap::new();
        Identity { kind: "forebay.Loader", config, data, former, names, share, per_packer: 1, default_order }
    }

    fn order_name(&self) -> &'static str {
        self.order.order.name()
    }

    fn order(&self) -> Option<Value> {
        Some(self.order_name().into())
    }

    fn global_batch_size(&self) -> Option<Value> {
        // Batches by duration may be continued by another number of ranks.
        self.config.batching.is_none().then(|| self.config.global_batch_size().into())
    }

    fn shuffle_min_size(&self) -> Option<Value> {
        (self.order_name() == "window").then(|| self.window())
    }

    fn window(&self) -> Value {
        self.config.shuffle_min_size.max(1).into()
    }

    /// An infinite pass has no last batch.
    fn drop_last(&self) -> Option<Value> {
        Some((self.config.drop_last && !self.config.infinite).into())
    }

    /// Where damage is an error, none is allowed.
    fn max_damage(&self) -> Option<Value> {
        (self.config.damage != "error").then(|| self.config.max_damage.into())
    }

    fn era_length(&self) -> Option<Value> {
        (self.order_name() == "era").then(|| self.config.era_length.into())
    }

    /// A hash of the sources' shares, since there may be many weights.
    fn weights(&self) -> Option<Value> {
        let shares = |weights: &[f64]| -> Vec<f64> {
            let sum: f64 = weights.iter().sum();
            weights.iter().map(|weight| (weight / sum * 1e9).round()).collect()
        };
        let names = self.config.arrow_files.names.as_ref()?;
        let stages = self.config.weights.of(names, &mut Vec::new());
        let stages: Vec<_> = stages.iter().map(|(from, weights)| (from, shares(weights))).collect();
        Some(digest(&format!("{stages:?}")))
    }

    fn source_sizes(&self) -> Option<Value> {
        self.config.is_mixture().then(|| digest(&format!("{:?}", self.source.group_starts())))
    }

    fn mixture_block(&self) -> Option<Value> {
        let block = self.config.mixture_block.unwrap_or(self.config.global_batch_size());
        self.config.is_mixture().then(|| block.into())
    }

    fn stop(&self) -> Option<Value> {
        let stop = if self.config.infinite { "restart" } else { "first_exhausted" };
        self.config.is_mixture().then(|| self.config.stop.as_deref().unwrap_or(stop).into())
    }

    /// The rows that are read, if not all.
    fn subset(&self) -> Option<Value> {
        let rows = self.positions.rows().and_then(rows_identity);
        let Some(weights) = self.weights else { return rows };
        let weights =
            weights.iter().map(|part| format!("{} copies, {:016x}", part.n_copies(), part.digest()));
        Some(json!({"rows": rows, "weights": weights.collect::<Vec<_>>()}))
    }

    fn augment(&self) -> Option<Value> {
        self.augmented(Recordings::fingerprint)
    }

    fn augmented(&self, fingerprint: fn(&Recordings) -> u64) -> Option<Value> {
        Some(match &self.config.augment {
            AugmentObject::Crop(is_random) => json!(is_random),
            AugmentObject::Steps { description, augment, .. } => {
                let (mut sources, mut planned) = (self.backgrounds.iter(), augment.steps());
                let mut identity = |step: &Value| {
                    let mut step = step.clone();
                    if planned.next().is_some_and(|planned| planned.kind.reading().is_some()) {
                        // Not the names of the files.
                        let source = sources.next().and_then(Partnering::others).map(|source| {
                            json!({"rows": source.n_rows(), "fingerprint": hex(fingerprint(source))})
                        });
                        step["source"] = json!(source);
                        step.as_object_mut().map(|step| step.remove("audio_column"));
                    }
                    step
                };
                let each = description.iter().map(|step| {
                    let Some(members) = members(step) else { return identity(step) };
                    let mut group = step.clone();
                    group["steps"] = members.iter().map(&mut identity).collect();
                    group
                });
                Value::Array(each.collect())
            }
        })
    }

    /// The fields by the numbers of their recordings, and these; not the names of the columns.
    fn audio(&self) -> Option<Value> {
        let audio = self.config.audio.as_ref()?;
        let mut numbers = audio.numbers(self.config.by_name()).into_iter();
        let fields: Vec<_> = audio
            .fields
            .iter()
            .map(|field| {
                let recordings: Vec<_> = numbers.by_ref().take(field.columns.len()).collect();
                json!([field.name, recordings, field.is_stacked])
            })
            .collect();
        let others: Vec<_> = self.others.iter().map(|part| hex(part.source.fingerprint())).collect();
        Some(json!({"fields": fields, "others": others}))
    }

    /// The tracks of the recordings that are read, if any was chosen.
    fn track(&self) -> Option<Value> {
        let tracks = self.config.tracks();
        tracks.iter().any(Option::is_some).then(|| json!(tracks))
    }

    /// The fields whose clips have places of their own, and whether these are of other rows.
    fn independent(&self) -> Option<Value> {
        let fields = &self.config.independent.as_ref()?.fields;
        Some(fields.iter().map(|(name, column)| (name.clone(), Value::from(column.is_some()))).collect())
    }

    /// As before there was a choice, unless it is another.
    fn missing_audio(&self) -> Option<Value> {
        (self.config.missing_audio != "error").then(|| self.config.missing_audio[..].into())
    }

    fn crop(&self) -> Option<Value> {
        let object = self.config.crop.as_ref()?;
        let mut description = object.description.clone();
        if let Some(all) = object.rule.spans().and_then(|spans| spans.table.as_ref()) {
            // Of Views, the crop within has them.
            let views = object.rule.views().is_some();
            let of = if views { &mut description["crop"] } else { &mut description };
            of["annotations"] = all.digest().into();
        }
        Some(description)
    }

    /// The rule, and a hash of the lengths that it is about.
    fn batching(&self) -> Option<Value> {
        let object = self.config.batching.as_ref()?;
        let mut batching = object.description.clone();
        batching["lengths"] = hex(self.lengths?);
        Some(batching)
    }

    fn features(&self) -> Option<Value> {
        self.config.features.as_ref().map(|object| object.description.clone())
    }

    fn targets(&self) -> Option<Value> {
        let targets = self.config.targets.as_ref()?;
        let planned =
            self.outputs.targets().filter(|target| targets.iter().any(|one| one.name == target.field().name));
        Some(
            planned
                .map(|target| (target.field().name.clone(), target.identity()))
                .collect::<Map<_, _>>()
                .into(),
        )
    }

    /// That of an object of features follows from it.
    fn n_frames(&self) -> Option<Value> {
        let shape = self.audio.clip_shape();
        let frames = if self.config.layout == "time" { shape.first() } else { shape.last() };
        frames.filter(|_| self.config.features.is_none()).map(|&n| n.into())
    }

    fn exclude(&self) -> Option<Value> {
        rows_identity(self.exclude)
    }
}
