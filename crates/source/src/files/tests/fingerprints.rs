//! Fingerprints of rows, which states have.

use super::*;

#[test]
fn the_fingerprint_is_that_of_the_rows() {
    let text = "path,start,end,label,n\na,1,2,x,1\nb,2,3,y,2\n";
    let of = |text: &str, columns: &[&str]| table("a.csv", text, columns).unwrap().fingerprint();
    let whole = of(text, &["n"]);
    assert_eq!(whole, of(&text.replace("a,1,2,x,1", "a,1.0,2e0,x,1"), &["n"]));
    for other in [
        text.replace("\na,1", "\nc,1"),
        text.replace("1,2,x", "1.5,2,x"),
        text.replace("2,3,y", "2,,y"),
        text.replace("y,2", "z,2"),
        text.replace("y,2", "x,2"),
        text.replace("y,2", "y,3"),
        "path,start,end,label,n\nb,2,3,y,2\na,1,2,x,1\n".to_owned(),
        text.replace("b,2,3,y,2\n", ""),
    ] {
        assert_ne!(whole, of(&other, &["n"]), "{other}");
    }
    // A column that is not used does not count.
    assert_eq!(of(text, &[]), of(&text.replace("y,2", "y,3"), &[]));
}

/// States have a hash of the rows, so it is the same in all versions.
#[test]
fn fingerprints_are_those_of_earlier_versions() {
    let mut csv = "path,start,end,label,n,x,good,note,empty\n".to_owned();
    let mut jsonl = String::new();
    for row in 0..200 {
        let unless =
            |every: usize, value: String, none: &str| if row % every == 1 { none.to_owned() } else { value };
        csv += &format!(
            "a{}.wav,{row},{}.5,owl{},{},{},{},\"n, {row}\",\n",
            row / 3,
            row + 1,
            row % 3,
            unless(7, (row as i64 - 50).to_string(), ""),
            unless(5, format!("{row}.25"), ""),
            unless(9, (if row % 2 == 0 { "true" } else { "False" }).to_owned(), ""),
        );
        jsonl += &format!(
            "{{\"path\": \"a{}.wav\", \"offset\": {row}, \"duration\": 1.5, \"label\": {}, \"n\": {}, \"x\": {}, \"good\": {}, \
             \"note\": {}, \"empty\": null, \"tags\": {}, \"spans\": {}, \"deep\": {{\"s\": [\"a\", \"{row}\"]}}}}\n",
            row / 3,
            row % 4,
            unless(7, row.to_string(), "null"),
            unless(5, if row < 9 { row.to_string() } else { format!("{row}.5") }, "null"),
            unless(9, (row % 2 == 0).to_string(), "null"),
            unless(4, format!("\"n {row}\""), "null"),
            unless(3, format!("[{row}, {}]", row + 1), "null"),
            unless(6, format!("[[{row}, 1.5], [2, 3]]"), "null"),
        );
    }
    let columns = ["n", "x", "good", "note", "empty", "tags", "spans", "deep.s", "deep.s.1"];
    assert_eq!(table("a.csv", csv, &columns[..5]).unwrap().fingerprint(), 5_085_484_975_110_951_460);
    assert_eq!(table("a.jsonl", jsonl, &columns).unwrap().fingerprint(), 6_964_991_197_634_563_156);
    let text = |text: &str| GivenValue::Text(text.into());
    let list = |items: &[GivenValue]| GivenValue::List(items.to_vec());
    let rows = GivenRows::new(vec![
        ("path".into(), vec![text("a.wav"), text("b.wav"), text("b.wav")]),
        ("good".into(), vec![GivenValue::Bool(true), GivenValue::Null, GivenValue::Bool(false)]),
        ("tags".into(), vec![list(&[text("x"), GivenValue::Null]), GivenValue::Null, list(&[])]),
        ("none".into(), vec![GivenValue::Null, GivenValue::Null, GivenValue::Float(f64::NAN)]),
    ]);
    let manifest = Manifest { rows: RowSource::Given(Arc::new(rows.unwrap())), ..Manifest::of("") };
    let source =
        open(vec![Entry::Manifest(Arc::new(manifest))], &reading(&["good", "tags", "none"])).unwrap();
    assert_eq!(source.fingerprint(), 115_385_415_978_307_844);
}
