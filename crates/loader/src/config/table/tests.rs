//! Tests of the tables of parameters.

use super::*;
use crate::LoaderConfig;
use crate::config::advice::distance;

#[test]
fn a_swap_is_one_step() {
    for (a, b, steps) in [("", "abc", 3), ("abc", "abc", 0), ("ba", "ab", 1), ("kitten", "sitting", 3)] {
        assert_eq!((distance(a, b), distance(b, a)), (steps, steps), "{a} {b}");
    }
}

#[test]
fn names_of_other_libraries_are_known() {
    for (unknown, advice) in [
        ("num_workers", "use n_workers instead"),
        ("shuffle", "use shuffle_min_size and order instead"),
        ("batchsize", "use batch_size instead"),
        ("Batch_Sise", "did you mean batch_size?"),
        ("shufle_min_size", "did you mean shuffle_min_size?"),
        (
            "pin_memory",
            "forebay.torch.DataLoader(loader, pin_memory=True) pins batches, and with device= it copies them to a device",
        ),
        ("num_mel_filters", "help(forebay.Loader) lists the parameters"),
        ("lr", "help(forebay.Loader) lists the parameters"),
        ("n_worker", "did you mean n_workers?"),
        ("clip", "did you mean clip_seconds?"),
        ("max", "help(forebay.Loader) lists the parameters"),
        ("qwertyuiop", "help(forebay.Loader) lists the parameters"),
    ] {
        assert_eq!(LoaderConfig::TABLE.advice(unknown), advice, "{unknown}");
    }
}

#[test]
fn every_loader_tells_what_replaces_a_parameter() {
    let tables =
        [LoaderConfig::TABLE, crate::config::TokenConfig::TABLE, crate::config::DatasetConfig::TABLE];
    for unknown in ["shuffle", "num_workers", "collate_fn", "epochs", "sampler", "drop_lasst", "pin_memory"] {
        for table in tables {
            let advice = table.advice(unknown);
            assert!(!advice.starts_with("help("), "{} {unknown}: {advice}", table.class);
        }
    }
}

#[test]
fn no_name_of_another_library_is_a_parameter() {
    for parameter in LoaderConfig::TABLE.parameters {
        for other in parameter.elsewhere {
            assert!(LoaderConfig::TABLE.parameters.iter().all(|one| one.name != *other), "{other}");
        }
    }
}

#[test]
fn choices_are_told() {
    assert_eq!(one_of("a", &"x".to_owned(), &["b", "c"]).unwrap(), "a is \"x\", must be \"b\" or \"c\"");
    let optional = one_of("a", &Some("x".to_owned()), &["b", "c", "d"]).unwrap();
    assert_eq!(optional, "a is \"x\", must be \"b\", \"c\" or \"d\", or None");
    assert_eq!(one_of("a", &None, &["b"]), None);
}
