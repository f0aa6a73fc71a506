use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;

use shuffle_protocol::{HeartbeatTimeout, MapId, ReduceId};
use tempfile::TempDir;
use test_support::fixture::{FixtureExecutor, partition};
use test_support::process::ServiceProcess;

use crate::run::{Ended, registered, run, service};

struct Written {
    service: ServiceProcess,
    executor: FixtureExecutor,
    partitions: Vec<Vec<u8>>,
}

/// A service with the blocks `shuffle_0_3_0` to `shuffle_0_3_2` of app-1.
async fn written() -> Written {
    let service = service();
    let partitions: Vec<_> = [(0, 40_000), (1, 0), (2, 999)]
        .map(|(reduce, length)| partition(MapId(3), ReduceId(reduce), length))
        .into();
    let (_, executor) = registered(&service, "app-1", &partitions, HeartbeatTimeout::Never).await;
    Written { service, executor, partitions }
}

impl Written {
    fn fetch(&self, args: &[&str]) -> Ended {
        let server = self.service.shuffle.to_string();
        let conf = "spark.shuffle.io.maxRetries=0";
        let base = ["fetch", "--server", &server, "--app", "app-1", "--exec", "1", "--conf", conf];
        run(&[&base, args].concat())
    }

    /// Changes one byte of the data file.
    fn damage(&self, offset: u64) {
        let path = self.executor.data_path(0, 3);
        let file =
            OpenOptions::new().read(true).write(true).open(path).expect("the data file is there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("it has this byte");
        file.write_all_at(&[!byte[0]], offset).expect("it can be written");
    }
}

#[tokio::test]
async fn writes_blocks_to_files_of_their_names() {
    let written = written().await;
    written.executor.write("rdd_4_7", b"cached");
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let out = dir.path().join("not/yet/there");
    let blocks = ["shuffle_0_3_0", "shuffle_0_3_1", "shuffle_0_3_2"];
    let ended = written.fetch(&[&["--out", out.to_str().unwrap()], &blocks[..]].concat()).expect(0);
    for (block, content) in blocks.iter().zip(&written.partitions) {
        assert!(ended.line(&format!("ok      {block}  ")).contains(out.to_str().unwrap()));
        assert_eq!(&fs::read(out.join(block)).unwrap(), content, "{block}");
    }
    written.fetch(&["--out", out.to_str().unwrap(), "rdd_4_7"]).expect(0);
    assert_eq!(fs::read(out.join("rdd_4_7")).unwrap(), b"cached");
}

#[tokio::test]
async fn verifies_against_the_checksums_of_the_executor() {
    let written = written().await;
    let blocks = ["shuffle_0_3_0", "shuffle_0_3_2"];
    let good = written.fetch(&[&["--verify"], &blocks[..]].concat()).expect(0);
    assert_eq!(good.line("ok      shuffle_0_3_2"), "ok      shuffle_0_3_2  999 B, ADLER32 matches");

    written.damage(40_500);
    let bad = written.fetch(&[&["--verify"], &blocks[..]].concat()).expect(1);
    assert_eq!(
        bad.line("FAILED"),
        "FAILED  shuffle_0_3_2  damaged on disk: its bytes are not those that were written"
    );
    assert!(bad.line("ok ").contains("shuffle_0_3_0"), "{bad}");
    bad.complains(&["shuffled: 1 of 2 blocks failed"]);

    written
        .fetch(&["--verify", "--algorithm", "CRC32", "shuffle_0_3_0"])
        .expect(1)
        .says(&["FAILED  shuffle_0_3_0  not verified: the service found no CRC32 checksum file"]);
}

#[tokio::test]
async fn a_missing_block_is_1_and_named_with_its_cause() {
    let written = written().await;
    let ended = written.fetch(&["--verify", "shuffle_0_9_0", "shuffle_0_3_0"]).expect(1);
    assert!(ended.line("FAILED  shuffle_0_9_0  ").contains("shuffle_0_9_0.index"), "{ended}");
    ended.line("ok      shuffle_0_3_0");

    fs::remove_file(written.executor.data_path(0, 3)).unwrap();
    let ended = written.fetch(&["--verify", "shuffle_0_3_0"]).expect(1);
    assert!(ended.line("FAILED  shuffle_0_3_0  ").contains("shuffle_0_3_0.data"), "{ended}");
}

#[tokio::test]
async fn an_executor_nobody_registered_is_1_and_says_so() {
    let written = written().await;
    let server = written.service.shuffle.to_string();
    run(&[
        "fetch",
        "--server",
        &server,
        "--app",
        "app-1",
        "--exec",
        "9",
        "--verify",
        "shuffle_0_3_0",
    ])
    .expect(1)
    .says(&["FAILED  shuffle_0_3_0  ", "is not registered"]);
}

#[test]
fn nobody_to_ask_is_1_and_says_whom() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    run(&[
        "fetch",
        "--server",
        &free,
        "--app",
        "a",
        "--exec",
        "1",
        "--verify",
        "--conf",
        "spark.shuffle.io.maxRetries=0",
        "shuffle_0_0_0",
    ])
    .expect(1)
    .says(&["FAILED  shuffle_0_0_0", &free, "Connection refused"]);
}

#[tokio::test]
async fn what_is_no_block_id_is_2() {
    let written = written().await;
    for block in ["shuffle_0_3", "../../etc/passwd", "shuffle_0_3_-1", "rdd_1_2/../x", ""] {
        let ended = written.fetch(&["--verify", block]).expect(2);
        ended.complains(&["shuffled: ", &format!("{block:?}")]);
    }
    written.fetch(&["--verify", "shuffle_0_3_0", "rdd_1_2"]).expect(2);
    written.fetch(&["--verify", "--algorithm", "MD5", "rdd_1_2"]).expect(2).complains(&["CRC32C"]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_1_and_named() {
    let written = written().await;
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    written
        .fetch(&["--out", file.to_str().unwrap(), "shuffle_0_3_0"])
        .expect(1)
        .complains(&[&format!("cannot create {}", file.display())]);
}
