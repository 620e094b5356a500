//! Tests of the checks of footers and page headers.

use super::*;

const fn struct_field(step: u8) -> u8 {
    step << 4 | 12
}

/// A footer with the elements `schema`, no rows and no row groups.
fn footer(schema: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0x15, 2, 0x19, 0xfc];
    bytes.extend(varint(schema.len() as u64));
    bytes.extend(schema.concat());
    bytes.extend([0x16, 0, 0x19, 0x0c, 0]);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn group(name: &str, children: u32) -> Vec<u8> {
    [
        vec![0x35, 0, 0x18],
        varint(name.len() as u64),
        name.into(),
        vec![0x15],
        varint(2 * u64::from(children)),
        vec![0],
    ]
    .concat()
}

fn leaf(name: &str) -> Vec<u8> {
    [vec![0x15, 12, 0x25, 0, 0x18], varint(name.len() as u64), name.into(), vec![0]].concat()
}

fn nested(depth: usize) -> Vec<u8> {
    footer(&[vec![group("g", 1); depth], vec![leaf("x")]].concat())
}

fn refused(bytes: &[u8]) -> String {
    let error = check_footer(bytes).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Format);
    error.message
}

#[test]
fn the_tree_of_columns_is_as_it_says() {
    for depth in [1, 2, MOST_SCHEMA_DEPTH] {
        check_footer(&nested(depth)).unwrap();
    }
    for depth in [MOST_SCHEMA_DEPTH + 1, 2000, 100_000] {
        assert!(refused(&nested(depth)).contains("nested deeper"), "{depth}");
    }
    check_footer(&footer(&[group("root", 2), leaf("a"), group("b", 1), leaf("c")])).unwrap();
    check_footer(&footer(&[group("root", 0)])).unwrap();
    for children in [3, 1 << 30] {
        let bytes = footer(&[group("root", children), leaf("a"), leaf("b")]);
        assert!(refused(&bytes).contains("num_children is larger"), "{children}");
    }
    let bytes = footer(&[group("root", 2), group("a", 1), leaf("b")]);
    assert!(refused(&bytes).contains("num_children is larger"));
    let bytes = footer(&[group("root", 1), leaf("a"), leaf("b")]);
    assert!(refused(&bytes).contains("num_children is smaller"));
    let mut negative = group("root", 0);
    negative[8 + 1] = 1;
    assert!(refused(&footer(&[negative])).contains("negative"));
}

/// Each column would hold a copy of its group's long name.
#[test]
fn names_are_not_multiplied_without_end() {
    let columns = vec![leaf("x"); 3000];
    let long = "n".repeat(30_000);
    let bytes = footer(&[vec![group("root", 1), group(&long, 3000)], columns].concat());
    assert!(refused(&bytes).contains("64 MiB"));
}

#[test]
fn lists_have_what_they_claim() {
    let good = nested(1);
    for cut in 0..good.len() {
        refused(&good[..cut]);
    }
    // A schema of a million elements, then of 2^40, followed by a few bytes.
    for n in [1 << 20, 1 << 40] {
        let bytes = [vec![0x15, 2, 0x19, 0xfc], varint(n), vec![0; 40]].concat();
        refused(&bytes);
    }
    // Empty structs are enough bytes for a list of that length, but elements of a schema must have a
    // name.
    let bytes = [vec![0x15, 2, 0x19, 0xfc], varint(1 << 19), vec![0; 1 << 20]].concat();
    assert!(refused(&bytes).contains("more columns"));
    let groups = [vec![0x16, 0, 0x19, 0xfc], varint(1 << 19), vec![0; 1 << 20]].concat();
    let bytes = [&nested(1)[..nested(1).len() - 5], &groups].concat();
    assert!(refused(&bytes).contains("more row groups"));
}

#[test]
fn fields_have_their_types() {
    // The schema as a string, as a list of numbers, as a struct; the number of rows as a list.
    for bad in [
        vec![0x15, 2, 0x18, 1, 0, 0],
        vec![0x15, 2, 0x19, 0x15, 0, 0],
        vec![0x15, 2, struct_field(1), 0, 0],
        vec![0x39, 0x15, 0, 0],
    ] {
        assert!(refused(&bad).contains("another type"), "{bad:x?}");
    }
}

#[test]
fn unknown_fields_are_passed_over_within_bounds() {
    let good = nested(1);
    let end = good.len() - 1;
    let with = |field: &[u8]| [&good[..end], field, &[0]].concat();
    // Field 4 was the last one; 11 is unknown: a map of numbers to lists of texts.
    check_footer(&with(&[0x7b, 1, 0x59, 8, 0x28, 1, b'a', 0])).unwrap();
    // Nested structs.
    let deep = |n| with(&[vec![struct_field(7)], vec![struct_field(1); n], vec![0; n + 1]].concat());
    check_footer(&deep(20)).unwrap();
    assert!(refused(&deep(100)).contains("nested deeper"));
    assert!(refused(&deep(1 << 20)).contains("nested deeper"));
    // 2^31 - 1 booleans of no bytes, in a list and a map.
    let many = varint((1 << 31) - 1);
    refused(&with(&[vec![0x79, 0xf2], many.clone(), vec![1; 8]].concat()));
    assert!(refused(&with(&[0x79, 0x22, 1, 1])).contains("booleans"));
    assert!(refused(&with(&[0x7b, 2, 0x22, 1, 1])).contains("booleans"));
    assert!(refused(&with(&[0x7e])).contains("an unknown type"));
}

#[test]
fn page_headers_are_read_in_any_order() {
    // type 2 (a dictionary), 300 bytes, 200 compressed, CRC -1, struct 7 with 70 values.
    let header = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x15, 1, 0x3c, 0x15, 0x8c, 1, 0, 0];
    let expected = PageClaims { size: 300, compressed: 200, n_values: 70, values_and_rows: None };
    assert_eq!(page_claims(&header).unwrap(), expected);
    for cut in 0..header.len() {
        assert_eq!(page_claims(&header[..cut]), Err(Wrong::Short), "{cut}");
    }
    // With explicit field ids, in descending order, and the size twice.
    let header = [0x0c, 14, 0x15, 0x8c, 1, 0, 5, 6, 0x90, 3, 5, 4, 0xd8, 4, 5, 2, 4, 5, 4, 2, 0];
    assert_eq!(page_claims(&header).unwrap(), expected);
    assert!(matches!(page_claims(&[0xff; 20]), Err(Wrong::Not(_))));
    // A data page of version 2 with 60 values, no null, 59 rows.
    let header = [0x15, 6, 0x15, 20, 0x15, 20, 0x5c, 0x15, 120, 0x15, 0, 0x15, 118, 0, 0];
    assert_eq!(page_claims(&header).unwrap().values_and_rows, Some([60, 59]));
}
