import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * An executor as Spark has one, at a shuffle service: registers, fetches, asks and removes through
 * Spark's own client, and compares every byte with the files it wrote itself.
 *
 * <p>ExecutorBed port=P app=ID dir=DIR steps=a,b,... [exec=ID] [host=H] [secret=S] [conf.K=V]...
 *
 * <p>Says one check a line, then "done". A step that the client has no method for is an error.
 */
public final class ExecutorBed {
  private static final int PATIENCE_SECONDS = 60;
  private static final int MAPS = 3;
  private static final int REDUCES = 5;
  private static final String NOBODY = "nobody";

  private interface Step {
    void run() throws Exception;
  }

  private final Bed bed;
  private final Object client;
  private final String exec;
  private final File root;
  private final Files files;
  private final byte[][][] partitions = new byte[MAPS][REDUCES][];
  private final byte[] rdd;
  private final byte[] big;
  private final Map<String, Step> steps = new LinkedHashMap<>();

  private ExecutorBed(Bed bed) throws Exception {
    this.bed = bed;
    client =
        bed.client(
            Reflect.type("shuffle.ExternalBlockStoreClient", "shuffle.ExternalShuffleClient"));
    exec = bed.option("exec", "7");
    root = new File(bed.option("dir")).getAbsoluteFile();
    files = new Files(root);

    Random random = new Random(42);
    for (int map = 0; map < MAPS; map++) {
      for (int reduce = 0; reduce < REDUCES; reduce++) {
        boolean empty = map == 1 && reduce == 2;
        partitions[map][reduce] =
            Files.random(random, empty ? 0 : 100 + random.nextInt(20_000));
      }
    }
    rdd = Files.random(random, 3333);
    big = Files.random(random, 70 << 20);

    steps.put("unregistered", this::unregistered);
    steps.put("write", this::write);
    steps.put("register", this::register);
    steps.put("fetch", this::fetch);
    steps.put("batch", this::batch);
    steps.put("missing", this::missing);
    steps.put("rdd", this::rdd);
    steps.put("dirs", this::dirs);
    steps.put("diagnose", this::diagnose);
    steps.put("push", this::push);
    steps.put("remove", this::remove);
    steps.put("big", this::big);
    steps.put("file", this::file);
  }

  public static void main(String[] arguments) throws Exception {
    Bed bed = new Bed(arguments);
    ExecutorBed executor = new ExecutorBed(bed);
    for (String name : bed.option("steps").split(",")) {
      Step step = executor.steps.get(name);
      if (step == null) {
        throw new IllegalArgumentException("no step " + name);
      }
      step.run();
    }
    Reflect.call(executor.client, "close");
    Bed.event("done");
    System.exit(0); // whatever threads the client has left
  }

  private void unregistered() throws Exception {
    refused("fetch without registration", one(exec, "shuffle_3_0_0"));
  }

  private void write() throws Exception {
    for (int map = 0; map < MAPS; map++) {
      files.writeMapOutput(3, map, partitions[map]);
    }
    files.writeMapOutput(4, 0, big);
    files.write("rdd_8_0", rdd);
    files.write("rdd_8_1", new byte[0]);
  }

  private void register() throws Exception {
    Object info =
        Reflect.construct(
            Reflect.type("shuffle.protocol.ExecutorShuffleInfo"),
            files.localDirs,
            Files.SUB_DIRS,
            "org.apache.spark.shuffle.sort.SortShuffleManager");
    for (String check : new String[] {"register", "register again"}) {
      Reflect.call(client, "registerWithShuffleServer", bed.host(), bed.port(), exec, info);
      Bed.check(check, true, "");
    }
  }

  private void fetch() throws Exception {
    List<String> ids = new ArrayList<>();
    for (int map = 0; map < MAPS; map++) {
      for (int reduce = 0; reduce < REDUCES; reduce++) {
        ids.add(shuffle(map, reduce));
      }
    }
    Map<String, Object> got = fetch(exec, null, ids.toArray(new String[0]));
    for (int map = 0; map < MAPS; map++) {
      for (int reduce = 0; reduce < REDUCES; reduce++) {
        String id = shuffle(map, reduce);
        same("fetch " + id, got.get(id), partitions[map][reduce]);
      }
    }
  }

  private void batch() throws Exception {
    String first = "shuffle_3_0_0_3";
    String second = "shuffle_3_2_1_5";
    Map<String, Object> got = fetch(exec, null, first, second);
    same(
        "batch of the first three",
        got.get(first),
        Files.concat(Arrays.copyOfRange(partitions[0], 0, 3)));
    same(
        "batch of the last four",
        got.get(second),
        Files.concat(Arrays.copyOfRange(partitions[2], 1, 5)));
  }

  private void missing() throws Exception {
    refused("map output that is not there", one(exec, "shuffle_3_99_0"));
    refused("reduce id beyond the index", one(exec, "shuffle_3_0_77"));
    refused("unknown executor", one(NOBODY, "shuffle_3_0_0"));
    refused("block id of no known kind", one(exec, "bogus_1"));
    String bad = "shuffle_3_99_1";
    Map<String, Object> got = fetch(exec, null, shuffle(0, 1), bad);
    same("good block before a bad one", got.get(shuffle(0, 1)), partitions[0][1]);
    refused("bad block after a good one", got.get(bad));
  }

  private void rdd() throws Exception {
    Map<String, Object> got = fetch(exec, null, "rdd_8_0", "rdd_8_1");
    same("RDD block", got.get("rdd_8_0"), rdd);
    same("empty RDD block", got.get("rdd_8_1"), new byte[0]);
    refused("RDD block that is not there", one(exec, "rdd_8_9"));
  }

  private void dirs() throws Exception {
    Bed.check(
        "local dirs", Arrays.equals(localDirs(exec).get(exec), files.localDirs), "");
    try {
      Map<String, String[]> got = localDirs(exec, NOBODY);
      Bed.check("local dirs of an unknown executor", false, "answered " + got.keySet());
    } catch (ExecutionException e) {
      Bed.check("local dirs of an unknown executor", true, Bed.line(e.getCause()));
    }
  }

  private void diagnose() throws Exception {
    long sum = Files.adler32(partitions[0][1]);
    diagnosed("CHECKSUM_VERIFY_PASS", "reader has the right sum", 0, 1, sum, "ADLER32");
    diagnosed("NETWORK_ISSUE", "reader has another sum", 0, 1, sum + 1, "ADLER32");
    diagnosed("UNKNOWN_ISSUE", "no such map output", 77, 1, sum, "ADLER32");
    diagnosed("UNSUPPORTED_CHECKSUM_ALGORITHM", "no such algorithm", 0, 1, sum, "XYZ");

    String name = "shuffle_3_2_0.data";
    byte[] data = Files.concat(partitions[2]);
    data[1] ^= 1;
    files.write(name, data);
    diagnosed(
        "DISK_ISSUE", "file is damaged", 2, 0, Files.adler32(partitions[2][0]) + 1, "ADLER32");
    data[1] ^= 1;
    files.write(name, data);
  }

  /** No service but YARN's merges pushed blocks. */
  private void push() throws Exception {
    BlockingQueue<String> outcome = new LinkedBlockingQueue<>();
    Object listener =
        Reflect.implement(
            Reflect.type("shuffle.MergeFinalizerListener"),
            (proxy, method, arguments) -> {
              boolean refused = arguments[0] instanceof Throwable;
              outcome.add(refused ? Bed.line((Throwable) arguments[0]) : "");
              return null;
            });
    Reflect.call(client, "finalizeShuffleMerge", bed.host(), bed.port(), 3, 0, listener);
    String refusal = outcome.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
    Bed.check(
        "push merge is refused",
        refusal != null && !refusal.isEmpty(),
        refusal == null ? "no answer" : refusal);
  }

  private void remove() throws Exception {
    removed("2", exec, "rdd_8_0", "rdd_8_1", "rdd_8_2");
    Bed.check("removed files are gone", !files.place("rdd_8_0").exists(), "");
    refused("removed block", one(exec, "rdd_8_0"));
    removed("0", NOBODY, "rdd_8_0");
  }

  private void big() throws Exception {
    same("70 MiB in one chunk", one(exec, "shuffle_4_0_0"), big);
  }

  /** To a file, as blocks above spark.network.maxRemoteBlockSizeFetchToMem: by StreamRequest. */
  private void file() throws Exception {
    AtomicInteger count = new AtomicInteger();
    Object manager =
        Reflect.implement(
            Reflect.type("shuffle.DownloadFileManager"),
            (proxy, method, arguments) ->
                method.getName().equals("createTempFile")
                    ? Reflect.construct(
                        Reflect.type("shuffle.SimpleDownloadFile"),
                        new File(root, "download-" + count.getAndIncrement()),
                        arguments[0])
                    : Boolean.TRUE);
    same("70 MiB to a file", fetch(exec, manager, "shuffle_4_0_0").get("shuffle_4_0_0"), big);
    same("small block to a file", fetch(exec, manager, shuffle(0, 1)).get(shuffle(0, 1)),
        partitions[0][1]);
    refused(
        "missing block to a file", fetch(exec, manager, "shuffle_3_99_0").get("shuffle_3_99_0"));
  }

  private static String shuffle(int map, int reduce) {
    return "shuffle_3_" + map + "_" + reduce;
  }

  private Object one(String executor, String id) throws Exception {
    return fetch(executor, null, id).get(id);
  }

  /** What came of each block: its bytes, the exception it failed with, or null for no answer. */
  private Map<String, Object> fetch(String executor, Object downloads, String... ids)
      throws Exception {
    Map<String, Object> got = new ConcurrentHashMap<>();
    CountDownLatch missing = new CountDownLatch(ids.length);
    Object listener =
        Reflect.implement(
            Reflect.type("shuffle.BlockFetchingListener"),
            (proxy, method, arguments) -> {
              String name = method.getName();
              if (name.equals("getTransferType")) {
                return "fetch";
              }
              String id = (String) arguments[0];
              got.put(id, name.endsWith("Success") ? bytes(arguments[1]) : arguments[1]);
              missing.countDown();
              return null;
            });
    Reflect.call(client, "fetchBlocks", bed.host(), bed.port(), executor, ids, listener, downloads);
    missing.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
    return got;
  }

  private static byte[] bytes(Object managedBuffer) throws Exception {
    ByteBuffer buffer = (ByteBuffer) Reflect.call(managedBuffer, "nioByteBuffer");
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(bytes);
    return bytes;
  }

  private Map<String, String[]> localDirs(String... executors) throws Exception {
    CompletableFuture<Map<String, String[]>> answer = new CompletableFuture<>();
    Reflect.call(client, "getHostLocalDirs", bed.host(), bed.port(), executors, answer);
    return answer.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  private void diagnosed(
      String want, String check, long map, int reduce, long sum, String algorithm)
      throws Exception {
    Object cause =
        Reflect.call(
            client, "diagnoseCorruption", bed.host(), bed.port(), exec, 3, map, reduce, sum,
            algorithm);
    Bed.check("diagnose: " + check, cause.toString().equals(want), cause.toString());
  }

  private void removed(String want, String executor, String... ids) throws Exception {
    Future<?> answer =
        (Future<?>) Reflect.call(client, "removeBlocks", bed.host(), bed.port(), executor, ids);
    String count = answer.get(PATIENCE_SECONDS, TimeUnit.SECONDS).toString();
    Bed.check("remove " + ids.length + " of executor " + executor, count.equals(want), count);
  }

  private static void same(String check, Object got, byte[] want) {
    boolean same = got instanceof byte[] && Arrays.equals((byte[]) got, want);
    Bed.check(check, same, describe(got));
  }

  private static void refused(String check, Object got) {
    Bed.check(check, got instanceof Throwable, describe(got));
  }

  private static String describe(Object got) {
    if (got instanceof byte[]) {
      return ((byte[]) got).length + " bytes";
    }
    return got == null ? "no answer" : Bed.line((Throwable) got);
  }
}
