//! The fuzz targets over the committed corpus, without a fuzzer (`fuzz/README.md`).
#![allow(clippy::disallowed_methods, reason = "the corpus is files; the crate itself reads none")]

mod common;
#[path = "../../fuzz/targets.rs"]
mod targets;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{golden_frames, golden_messages};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 4] = [
    ("frames", targets::frames),
    ("messages", targets::messages),
    ("block_ids", targets::block_ids),
    ("index", targets::index),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

#[test]
fn every_file_of_the_corpus() {
    for (name, target) in TARGETS {
        let mut files = 0;
        for file in fs::read_dir(corpus().join(name)).unwrap() {
            let file = file.unwrap().path();
            println!("{}", file.display()); // the last one is at fault
            target(&fs::read(file).unwrap());
            files += 1;
        }
        assert!(files > 0, "{name}");
    }
}

#[test]
fn the_corpus_holds_the_golden_bytes() {
    for (file, bytes) in seeds() {
        let found = fs::read(corpus().join(&file));
        let found = found.unwrap_or_else(|error| panic!("{file}: {error}; see fuzz/README.md"));
        assert_eq!(found, bytes, "{file}");
    }
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    for (file, bytes) in seeds() {
        let file = corpus().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
}

/// What the corpus begins with: bytes by file.
fn seeds() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for (number, entry) in golden_messages().iter().enumerate() {
        seeds.insert(format!("messages/{number:02}-{}", entry.name), entry.bytes.to_vec());
    }
    let mut conversation = vec![7];
    for (number, entry) in golden_frames().iter().enumerate() {
        let cut = [&[1], &entry.bytes[..]].concat();
        seeds.insert(format!("frames/{number:02}-{}", entry.name), cut);
        conversation.extend_from_slice(&entry.bytes);
    }
    seeds.insert("frames/all".into(), conversation);
    for (name, bytes) in [
        ("frames/http", &b"\x02GET / HTTP/1.1\r\n\r\n"[..]),
        ("frames/tls", b"\x02\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
        ("frames/2-gib", b"\x02\0\0\0\0\x80\0\0\x07\x03"),
        ("block_ids/opened", b"shuffle_1_2_3\nshuffle_1_9223372036854775807_0"),
        ("block_ids/chunks", b"shuffleChunk_1_2_3_4\nshuffleChunk_1_2_3_5"),
        ("block_ids/rdd", b"rdd_5_6\nrdd_0_2147483647"),
        (
            "block_ids/files",
            b"shuffle_1_2_0.data\nshuffle_1_2_0.index\nshuffle_1_2_0.checksum.ADLER32",
        ),
        ("block_ids/push", b"shufflePush_1_2_3_4\nshufflePush_1_2_3\nshuffleMerged_1_2_3"),
        ("block_ids/merged", b"shuffleMerged_app-1_2_0_3.data\nshuffleMerged_a_b.c_2_0_3.meta"),
        ("block_ids/traversal", b"../x\n..\n/\nrdd_1_2/..\nshuffleMerged_../../x_1_2_3.index"),
        ("block_ids/numbers", b"rdd_+1_2\nrdd_01_2\nrdd_-1_2\nrdd_2147483648_0\nrdd_1_2_"),
        ("index/none", &[0; 8]),
        ("index/short", &[0; 7]),
    ] {
        seeds.insert(name.into(), bytes.to_vec());
    }
    for (name, offsets) in [
        ("index/three", &[0_i64, 10, 10, 4_000_000_000][..]),
        ("index/back", &[0, 10, 5]),
        ("index/negative", &[-1, 10, i64::MIN]),
        ("index/largest", &[0, i64::MAX]),
    ] {
        seeds.insert(name.into(), offsets.iter().flat_map(|o| o.to_be_bytes()).collect());
    }
    seeds
}
