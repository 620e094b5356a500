//! The kinds of parameters: the type of each in Rust, and its name in the documentation and in the stub.

use std::{collections::BTreeMap, path::PathBuf};

use crate::engine::MaxErrors;

pub(crate) type Int = i64;
pub(crate) type OptionalInt = Option<i64>;
pub(crate) type Seed = u64;
pub(crate) type OptionalSeed = Option<u64>;
pub(crate) type CountOrAuto = super::CountOrAuto;
pub(crate) type Float = f64;
pub(crate) type OptionalFloat = Option<f64>;
pub(crate) type Bool = bool;
pub(crate) type Text = String;
pub(crate) type OptionalText = Option<String>;
pub(crate) type OptionalPath = Option<PathBuf>;
pub(crate) type OnError = String;
pub(crate) type OptionalMaxErrors = Option<MaxErrors>;
pub(crate) type Sources = crate::config::Sources;
pub(crate) type Weights = crate::config::Weights;
pub(crate) type Exclude = crate::config::Exclude;
pub(crate) type Folders = crate::source::AllowPaths;
pub(crate) type TextSources = crate::config::TextSources;
pub(crate) type StoreOptions = crate::storage::StoreOptions;
pub(crate) type Names = Option<crate::config::Names>;
pub(crate) type Texts = Vec<String>;
pub(crate) type Waveforms = Option<crate::config::Waveforms>;
pub(crate) type Tracks = Option<crate::config::Tracks>;
pub(crate) type Independent = Option<crate::config::Independent>;
pub(crate) type Ids = BTreeMap<String, u32>;
pub(crate) type Features = Option<crate::config::FeatureObject>;
pub(crate) type Crop = Option<crate::config::CropObject>;
pub(crate) type Batching = Option<crate::config::BatchingObject>;
pub(crate) type Augment = crate::config::AugmentObject;
pub(crate) type Sampling = Option<crate::config::SamplingObject>;
pub(crate) type Targets = Option<Vec<crate::targets::TargetConfig>>;
pub(crate) type Tokenizer = crate::config::Opaque;
pub(crate) type Dataset = crate::config::Opaque;

/// The name of a kind in the documentation (`docs`) and in the stub (`stub`).
#[macro_export]
#[doc(hidden)]
macro_rules! kind_text {
    (docs Int) => {
        "int"
    };
    (stub Int) => {
        "int"
    };
    (docs OptionalInt) => {
        "int, optional"
    };
    (stub OptionalInt) => {
        "int | None"
    };
    (docs Seed) => {
        "int"
    };
    (stub Seed) => {
        "int"
    };
    (docs OptionalSeed) => {
        "int, optional"
    };
    (stub OptionalSeed) => {
        "int | None"
    };
    (docs CountOrAuto) => {
        "int or \"auto\""
    };
    (stub CountOrAuto) => {
        "int | Literal[\"auto\"]"
    };
    (docs Float) => {
        "float"
    };
    (stub Float) => {
        "float"
    };
    (docs OptionalFloat) => {
        "float, optional"
    };
    (stub OptionalFloat) => {
        "float | None"
    };
    (docs Bool) => {
        "bool"
    };
    (stub Bool) => {
        "bool"
    };
    (docs Text) => {
        "str"
    };
    (stub Text) => {
        "str"
    };
    (docs OptionalText) => {
        "str, optional"
    };
    (stub OptionalText) => {
        "str | None"
    };
    (docs OptionalPath) => {
        "path, optional"
    };
    (stub OptionalPath) => {
        "str | PathLike[str] | None"
    };
    (docs OnError) => {
        "str"
    };
    (stub OnError) => {
        "Literal[\"skip\", \"raise\"]"
    };
    (docs OptionalMaxErrors) => {
        "int or float, optional"
    };
    (stub OptionalMaxErrors) => {
        "float | None"
    };
    (docs Sources) => {
        "path, sequence of paths, datasets.Dataset, or dict of names and these"
    };
    (stub Sources) => {
        "_Sources"
    };
    (docs Weights) => {
        "dict, or list of (batch, dict), optional"
    };
    (stub Weights) => {
        "_Weights | None"
    };
    (docs Exclude) => {
        "path or sequence of int, optional"
    };
    (stub Exclude) => {
        "str | PathLike[str] | Iterable[int] | None"
    };
    (docs Folders) => {
        "bool, path or sequence of paths, optional"
    };
    (stub Folders) => {
        "bool | str | PathLike[str] | Iterable[str | PathLike[str]] | None"
    };
    (docs StoreOptions) => {
        "dict, optional"
    };
    (stub StoreOptions) => {
        "Mapping[str, str | bool | None] | None"
    };
    (docs TextSources) => {
        "path, sequence of paths, object of forebay.text, or dict of names and these"
    };
    (stub TextSources) => {
        "_TextSources"
    };
    (docs Names) => {
        "str or sequence of str, optional"
    };
    (stub Names) => {
        "str | Sequence[str] | None"
    };
    (docs Texts) => {
        "sequence of str, optional"
    };
    (stub Texts) => {
        "Sequence[str] | None"
    };
    (docs Waveforms) => {
        "dict of str and columns, optional"
    };
    (stub Waveforms) => {
        "Mapping[str, str | Sequence[str]] | None"
    };
    (docs Tracks) => {
        "int, or dict of str and int, optional"
    };
    (stub Tracks) => {
        "int | Mapping[str, int | Sequence[int]] | None"
    };
    (docs Independent) => {
        "sequence of str, or dict of str and column, optional"
    };
    (stub Independent) => {
        "Sequence[str] | Mapping[str, str | None] | None"
    };
    (docs Ids) => {
        "dict, optional"
    };
    (stub Ids) => {
        "Mapping[str, int] | None"
    };
    (docs Features) => {
        "str or object of forebay.features, optional"
    };
    (stub Features) => {
        "_Features | None"
    };
    (docs Crop) => {
        "object of forebay.crops, optional"
    };
    (stub Crop) => {
        "_Crops | None"
    };
    (docs Batching) => {
        "object of forebay.batching, optional"
    };
    (stub Batching) => {
        "_Batches | None"
    };
    (docs Augment) => {
        "bool or sequence of objects of forebay.augment"
    };
    (stub Augment) => {
        "bool | _Steps"
    };
    (docs Sampling) => {
        "object of forebay.sampling, optional"
    };
    (stub Sampling) => {
        "_Rows | None"
    };
    (docs Targets) => {
        "dict of str and objects of forebay.targets, or one object, optional"
    };
    (stub Targets) => {
        "_Targets | None"
    };
    (docs Tokenizer) => {
        "path, tokenizer or callable, optional"
    };
    (stub Tokenizer) => {
        "str | PathLike[str] | Tokenizer | _HubTokenizer | Callable[[str], Iterable[int]] | None"
    };
    (docs Dataset) => {
        "AsyncDataset"
    };
    (stub Dataset) => {
        "AsyncDataset"
    };
}
