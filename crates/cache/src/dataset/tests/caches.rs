//! Datasets over caches, complete and while they are written.

use super::*;

/// Writes documents of two fields to a cache: as many as `tokens` makes, in commits of `every`.
fn write_cache(folder: &std::path::Path, n: usize, every: usize, after: impl Fn(&mut CacheWriter, usize)) {
    let options = WriterOptions { shards: vec!["one".into()], ..WriterOptions::default() };
    let mut writer = CacheWriter::open(folder, "train", options).unwrap();
    for (number, documents) in tokens(0, n).chunks(every).enumerate() {
        let bytes = documents.iter().flatten().flat_map(|id| id.to_le_bytes()).collect();
        let lengths = documents.iter().map(|document| document.len() as u64).collect();
        let numbers = (0..documents.len()).map(|i| (number * every + i) as i64);
        let numbers = BatchColumn {
            name: "number".into(),
            dtype: DataType::Int64,
            rank: 0,
            data: numbers.flat_map(i64::to_le_bytes).collect(),
            // bounded: by the test.
            lengths: vec![1; documents.len()],
            shapes: Vec::new(),
        };
        let columns = vec![BatchColumn::flat("ids", DataType::Int32, bytes, lengths), numbers];
        writer.append("one", Some(Processed { documents: documents.len() as u64, columns })).unwrap();
        writer.advance("one", false);
        writer.commit().unwrap();
        after(&mut writer, (number + 1) * every);
    }
    writer.advance("one", true);
    writer.finish().unwrap();
}

fn open(folder: &std::path::Path) -> Arc<CacheStore> {
    Arc::new(CacheStore::open(folder, "train").unwrap())
}

#[test]
fn a_cache_is_the_list_of_its_documents() {
    let folder = tempfile::tempdir().unwrap();
    write_cache(folder.path(), 500, 77, |_, _| ());
    let cache = Dataset::of(Arc::new(DocumentLeaf(open(folder.path())))).permutation(3).unwrap();
    let oracle = list(0, 500).permutation(3).unwrap();
    let positions: Vec<u64> = (0..500).chain([7, 7, 499]).collect();
    let (found, expected) = (read(&cache, &positions), read(&oracle, &positions));
    assert_eq!(values(&found.columns[0]), values(&expected.columns[0]));
    assert_eq!(found.columns[0].offsets, expected.columns[0].offsets);
    // A scalar field is stacked.
    assert_eq!(cache.fields().unwrap()[1].shape(), Some(Vec::new()));
    assert_eq!(found.columns[1].offsets, None);
    let rows: Vec<i64> = rows(&oracle, 0).iter().map(|&row| row as i64).collect();
    assert_eq!(found.columns[1].values.values::<i64>()[..500], rows);

    let windows =
        |store: Arc<dyn Store>| Dataset::of(Arc::new(TokenLeaf::new(store, "ids", 16, true).unwrap()));
    let cache = windows(open(folder.path()));
    let oracle = windows(Arc::new(ListStore::of_tokens("ids", &tokens(0, 500)).unwrap()));
    let n = cache.clone().length(0).unwrap().rows;
    assert_eq!(n, oracle.clone().length(0).unwrap().rows);
    let all: Vec<u64> = (0..n).rev().collect();
    for column in 0..2 {
        assert_eq!(values(&read(&cache, &all).columns[column]), values(&read(&oracle, &all).columns[column]));
    }
}

#[test]
fn l9_a_cache_that_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, begin) = mpsc::channel();
    let path = folder.path().to_owned();
    let writer = thread::spawn(move || {
        write_cache(&path, 300, 20, |_, documents| {
            // The receiver may be dropped already.
            let _ = begun.send(documents);
            thread::sleep(Duration::from_millis(3));
        });
    });
    begin.recv().unwrap();
    let documents = Dataset::of(Arc::new(DocumentLeaf(open(folder.path()))));
    let mut eras = documents.clone().eras(32, 1).unwrap();
    let oracle = list(0, 300).eras(32, 1).unwrap();
    for position in (0..300).step_by(29) {
        let length = eras.wait(0, position + 1, &never).unwrap();
        assert!(length.rows > position && (length.is_final || length.rows.is_multiple_of(32)), "{length:?}");
        let found = values(&read(&eras, &[position]).columns[0]);
        assert_eq!(found, values(&read(&oracle, &[position]).columns[0]));
    }
    let mut permutation = documents.permutation(1).unwrap();
    assert_eq!(permutation.wait(0, 1, &never).unwrap(), LeafLength { rows: 300, is_final: true });
    writer.join().unwrap();
}

#[test]
fn l9_what_made_the_writer_fail_reaches_who_waits() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriterOptions { shards: vec!["one".into()], ..WriterOptions::default() };
    let mut writer = CacheWriter::open(folder.path(), "train", options).unwrap();
    let columns = vec![BatchColumn::flat("ids", DataType::Int32, vec![0; 8], vec![2])];
    writer.append("one", Some(Processed { documents: 1, columns })).unwrap();
    writer.commit().unwrap();
    let mut dataset = Dataset::of(Arc::new(TokenLeaf::new(open(folder.path()), "ids", 2, false).unwrap()));
    assert_eq!(dataset.length(0).unwrap(), LeafLength { rows: 1, is_final: false });
    writer.fail(&Error::new(ErrorKind::Corrupt, "document 2 of shard one is no text")).unwrap();
    let error = dataset.wait(0, 2, &never).unwrap_err();
    assert!(error.message.contains("document 2 of shard one is no text"), "{error}");
}

#[test]
fn numbers_of_a_field_are_read_alone() {
    for dtype in DataType::ALL {
        let store = Arc::new(ListStore::new(vec![
            Field::jagged("ids", DataType::Int32, 1),
            Field::number("w", dtype),
        ]));
        let n = 20_000;
        for i in 0..n {
            let bytes = match dtype {
                DataType::Float32 => (i as f32 / 3.0).to_ne_bytes().to_vec(),
                DataType::Float64 => (f64::from(i) / 3.0).to_ne_bytes().to_vec(),
                DataType::Float16 => half::f16::from_f64(f64::from(i % 500) / 4.0).to_ne_bytes().to_vec(),
                DataType::Bool => vec![(i % 2) as u8],
                dtype => bytes(dtype, &[i128::from(i % 128)]),
            };
            store.append(&[(vec![1], &[0; 4]), (vec![], &bytes)]).unwrap();
        }
        store.finish().unwrap();
        let dataset = Dataset::of(Arc::new(DocumentLeaf(store)));
        let expected = (0..n).map(|i| match dtype {
            DataType::Float32 => f64::from(i as f32 / 3.0),
            DataType::Float64 => f64::from(i) / 3.0,
            DataType::Float16 => f64::from(i % 500) / 4.0,
            DataType::Bool => f64::from(i % 2),
            _ => f64::from(i % 128),
        });
        assert!(dataset.numbers("w", &never).unwrap().into_iter().eq(expected), "{dtype:?}");
        assert_eq!(dataset.numbers("w", &|| true).unwrap_err().kind, ErrorKind::Closed);
        for wrong in ["ids", "none"] {
            let error = dataset.numbers(wrong, &never).unwrap_err();
            assert!(error.message.contains("must be a field with one number in each row"), "{error}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    write_cache(folder.path(), 500, 77, |_, _| ());
    let cache = Dataset::of(Arc::new(DocumentLeaf(open(folder.path()))));
    assert!(cache.numbers("number", &never).unwrap().into_iter().eq((0..500).map(f64::from)));
}
