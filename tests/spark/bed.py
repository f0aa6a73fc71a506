#!/usr/bin/env python3
"""A Spark application on loopback whose external shuffle service is a process of somebody else.

    bed.py '{"home": SPARK_HOME, "dir": EMPTY_DIR, "port": SERVICE_PORT, "swap": "kill", ...}'

Starts a standalone master and a worker, runs an application with two executors on them, and has the
executors that wrote the map outputs replaced before the reduce side reads: no setting makes an
executor fetch its own output through the service, so only the outputs of executors that are gone show
who served them.

Further keys of the argument:

    swap    "kill": SIGKILL to the executors; "idle": dynamic allocation removes them
    rdd     also blocks of a persisted RDD, and their removal through the service (default false)
    remove  also the removal of shuffles through the service (default false; wants "idle")
    control read again at the end, when the service must be gone (default false)
    once    no stage may be tried twice, since nothing that was written may be lost (default false)
    size    rows (default 120000)
    conf    more configuration of the application

Standard output is one JSON object a line: {"event": "swapped"} when the writers are gone,
{"event": "read"} when all has been read that they wrote, each of which waits for a line of standard
input, and {"event": "result", ...} at the end. When standard input ends, everything started here is killed.
Logs are in EMPTY_DIR, what is not theirs on standard error.
"""
import glob
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
LOOPBACK = "127.0.0.1"
PARTITIONS = 12
KEYS = 997
EXECUTORS = 2
PATIENCE = 90
LIMIT = 400

# These JVMs live for seconds: time spent on compiling well is not won back.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

# The local property that ShuffledRowRDD sets when it is made and the shuffle reader looks at.
BATCH_FETCH = "__fetch_continuous_blocks_in_batch_enabled"


def wait_until(what, condition, patience=PATIENCE):
    """What `condition` returns, as soon as that is true."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError("waited %d s for %s" % (patience, what))
        time.sleep(0.05)


def free_port():
    with socket.socket() as s:
        s.bind((LOOPBACK, 0))
        return s.getsockname()[1]


def listens(port):
    try:
        socket.create_connection((LOOPBACK, port), 1).close()
        return True
    except OSError:
        return False


class Cluster:
    """A master and a worker. Neither runs a shuffle service."""

    def __init__(self, home, directory):
        self.home = home
        self.dir = directory
        self.local_dir = os.path.join(directory, "local")
        self.processes = []
        os.makedirs(self.local_dir)
        conf = self.conf_dir("daemon", {"spark.shuffle.service.enabled": "false",
                                        "spark.master.rest.enabled": "false",
                                        "spark.master.ui.port": free_port(),
                                        "spark.worker.ui.port": free_port()})
        port = free_port()
        self.master = "spark://%s:%d" % (LOOPBACK, port)
        master = self.start("master", conf, "org.apache.spark.deploy.master.Master",
                            "--host", LOOPBACK, "--port", str(port))
        wait_until("the master", lambda: listens(port) or master.poll() is not None)
        self.start("worker", conf, "org.apache.spark.deploy.worker.Worker",
                   "--host", LOOPBACK, "--cores", str(EXECUTORS), "--memory", "2g",
                   "--work-dir", os.path.join(directory, "work"), self.master)

    def conf_dir(self, name, conf):
        directory = os.path.join(self.dir, name + "-conf")
        os.makedirs(directory)
        shutil.copy(os.path.join(HERE, "java", "log4j2.properties"), directory)
        with open(os.path.join(directory, "spark-defaults.conf"), "w") as f:
            for item in conf.items():
                f.write("%s %s\n" % item)
        return directory

    def environment(self, conf_dir):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        env.update(SPARK_HOME=self.home, SPARK_CONF_DIR=conf_dir, SPARK_LOCAL_IP=LOOPBACK,
                   SPARK_LOCAL_HOSTNAME=LOOPBACK, SPARK_LOCAL_DIRS=self.local_dir,
                   SPARK_NO_DAEMONIZE="1", PYSPARK_PYTHON=sys.executable,
                   JAVA_TOOL_OPTIONS=SHORT_LIVED)
        return env

    def start(self, name, conf_dir, *command):
        with open(os.path.join(self.dir, name + ".log"), "wb") as log:
            process = subprocess.Popen([os.path.join(self.home, "bin", "spark-class"), *command],
                                       env=self.environment(conf_dir), cwd=self.dir,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def files(self, pattern):
        """Files with such a name that executors have on disk."""
        return glob.glob(os.path.join(self.local_dir, "*", "*", "*", "*", pattern)) + \
            glob.glob(os.path.join(self.local_dir, "*", "*", "*", pattern))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Application:
    """The driver side of a Spark application, and what Spark counts about it."""

    def __init__(self, cluster, port, job):
        conf = {
            "spark.shuffle.service.enabled": "true",
            "spark.shuffle.service.port": port,
            # else an executor asks the service only for directories and reads files itself
            "spark.shuffle.readHostLocalDisk": "false",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.memory": "700m",
            "spark.executor.memory": "700m",
            "spark.executor.cores": "1",
            "spark.cores.max": EXECUTORS,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": PARTITIONS,
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            # several reduce partitions to one reader, which then fetches them in batches
            "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": "3m",
            # the first failed fetch fails the job
            "spark.task.maxFailures": "1",
            "spark.stage.maxConsecutiveAttempts": "1",
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "1s",
        }
        if job["swap"] == "idle":
            conf.update({
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.shuffleTracking.enabled": "false",
                "spark.dynamicAllocation.minExecutors": "0",
                "spark.dynamicAllocation.initialExecutors": EXECUTORS,
                "spark.dynamicAllocation.maxExecutors": EXECUTORS,
                "spark.dynamicAllocation.executorIdleTimeout": "4s",
                "spark.dynamicAllocation.cachedExecutorIdleTimeout": "4s",
                "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
            })
        if job.get("rdd"):
            conf["spark.shuffle.service.fetch.rdd.enabled"] = "true"
            # else an executor learns from the driver where such a block is, and reads the file itself
            conf["spark.storage.localDiskByExecutors.cacheSize"] = "0"
        if job.get("remove"):
            conf["spark.shuffle.service.removeShuffle"] = "true"
        conf.update(job.get("conf", {}))
        os.environ.update(cluster.environment(cluster.conf_dir("application", conf)))
        sys.path.insert(0, os.path.dirname(cluster.home))
        from pyspark.sql import SparkSession

        self.spark = SparkSession.builder.master(cluster.master).appName("bed").getOrCreate()
        self.sc = self.spark.sparkContext
        self.scala = self.sc._jsc.sc()

    def status(self):
        """What Spark's own user interface shows, with every event in it."""
        self.scala.listenerBus().waitUntilEmpty()
        return self.scala.statusStore()

    def executors(self):
        """How many tasks each executor has finished, by its id."""
        every = self.status().executorList(True)
        live = [every.apply(i) for i in range(every.size())]
        return {e.id(): e.completedTasks() for e in live if e.id() != "driver"}

    def wait_for_executors(self, gone=frozenset()):
        """Until each has run a task: it can only after it has registered with the service."""

        def at_work():
            executors = self.executors()
            if len(executors) < EXECUTORS or executors.keys() & gone:
                return False
            if all(executors.values()):
                return True
            self.spark.range(0, EXECUTORS, 1, EXECUTORS).write.format("noop").mode("append").save()
            return False

        wait_until("the executors to work", at_work)

    def pin(self, frame):
        """A data frame over the RDD of this one's plan, so that reading it twice maps once; and that RDD."""
        from pyspark.sql import DataFrame

        rdd = frame._jdf.queryExecution().toRdd()
        fixed = self.spark._jsparkSession.internalCreateDataFrame(rdd, frame._jdf.schema(), False)
        return DataFrame(fixed, self.spark), rdd

    def stages(self):
        """What each stage that has run read, by its number."""
        gateway = self.sc._gateway
        every = self.status().stageList(None, False, False, gateway.new_array(gateway.jvm.double, 0),
                                        gateway.jvm.java.util.ArrayList())
        stages = [every.apply(i) for i in range(every.size())]
        return {s.stageId(): Reads(s) for s in stages if s.status().toString() == "COMPLETE"}

    def stages_tried_twice(self):
        """The stages of which Spark ran more than one attempt: something that they read was lost."""
        tracker = self.sc.statusTracker()
        known = (tracker.getStageInfo(stage) for stage in range(1000))
        return [info.stageId for info in known if info and info.currentAttemptId > 0]

    def measured(self, action):
        """The result of an action, what its first stage read, and what all of its stages read."""
        before = self.stages()
        result = action()
        new = [reads for number, reads in sorted(self.stages().items()) if number not in before]
        return result, new[0], sum(new, Reads())

    def kill_executors(self):
        """SIGKILL to the executors' JVMs."""
        killed = 0
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue  # it has ended
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words \
                    and self.sc.applicationId in words:
                os.kill(int(path.split("/")[2]), signal.SIGKILL)
                killed += 1
        assert killed == EXECUTORS, "found %d executors to kill" % killed

    def wait_for_no_executor(self):
        """Until dynamic allocation has removed them all and only the driver manages blocks."""
        wait_until("the executors to go", lambda: self.scala.getExecutorMemoryStatus().size() == 1)

    def swap(self, how):
        """Returns when no executor is left of those that wrote map outputs."""
        before = self.executors().keys()
        if how == "idle":
            self.wait_for_no_executor()
        else:
            self.kill_executors()
            self.wait_for_executors(gone=before)


class Reads:
    """Shuffle and input that a stage read."""

    def __init__(self, stage=None):
        self.remote_blocks = stage.shuffleRemoteBlocksFetched() if stage else 0
        self.remote_bytes = stage.shuffleRemoteBytesRead() if stage else 0
        self.local_blocks = stage.shuffleLocalBlocksFetched() if stage else 0
        self.local_bytes = stage.shuffleLocalBytesRead() if stage else 0
        self.input_bytes = stage.inputBytes() if stage else 0

    def __add__(self, other):
        both = Reads()
        for name in vars(both):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both


class Rows:
    """The rows of the job and what aggregating them must give."""

    def __init__(self, spark, size):
        import pyspark.sql.functions as F

        # No Python function is sent to executors: the shuffles are the JVM's.
        number = F.col("id").cast("string")
        self.frame = spark.range(0, size, 1, PARTITIONS).select(
            "id", (F.col("id") % KEYS).alias("k"), F.concat(F.lit("r"), number, F.sha2(number, 256)).alias("s"))
        self.sums = [F.count("*"), F.sum("id"), F.sum(F.length("s")), F.sum(F.crc32(F.col("s").cast("binary")))]
        groups = self.frame.groupBy("k").agg(F.count("*").alias("c"), F.sum("id").alias("t"))
        self.sorted = self.frame.repartition("id").join(groups, "k").select("id", "k", "c", "t") \
            .sort(F.col("id").desc())
        self.sorted_sums = [F.count("*"), F.sum("id"), F.sum("c"), F.sum("t"), F.sum(F.col("k") * F.col("t"))]

        texts = ("r%d%s" % (i, hashlib.sha256(str(i).encode()).hexdigest()) for i in range(size))
        pairs = [(len(s), zlib.crc32(s.encode())) for s in texts]
        ids = size * (size - 1) // 2
        self.want = (size, ids, sum(n for n, _ in pairs), sum(crc for _, crc in pairs))
        count = [len(range(k, size, KEYS)) for k in range(KEYS)]
        total = [sum(range(k, size, KEYS)) for k in range(KEYS)]
        self.want_sorted = (size, ids, sum(c * c for c in count), sum(c * t for c, t in zip(count, total)),
                            sum(k * c * t for k, (c, t) in enumerate(zip(count, total))))
        self.want_first = [size - 1, size - 2, size - 3]


def shuffles(rdd):
    """The shuffles that an RDD reads, at whatever remove."""
    every = rdd.dependencies()
    for dependency in (every.apply(i) for i in range(every.size())):
        if dependency.getClass().getSimpleName() == "ShuffleDependency":
            yield dependency.shuffleId()
        yield from shuffles(dependency.rdd())


def run(job, cluster, app, pause):
    """Runs the job, and calls `pause` where somebody else may have something to do."""
    checks = {}
    app.wait_for_executors()
    rows = Rows(app.spark, job.get("size", 120_000))
    wide, wide_rdd = app.pin(rows.frame.repartition("id"))
    ordered, ordered_rdd = app.pin(rows.sorted)
    cached = None
    if job.get("rdd"):
        from pyspark import StorageLevel

        cached = rows.frame.persist(StorageLevel.DISK_ONLY)
        cached.count()

    def read_wide():
        return tuple(wide.agg(*rows.sums).collect()[0])

    answer, _, before = app.measured(read_wide)
    checks["right answer while the writers live"] = answer == rows.want

    app.swap(job["swap"])
    pause("swapped")
    # planning has done this in 3.5, but not in 4.3
    app.sc.setLocalProperty(BATCH_FETCH, "true")

    old_protocol = app.sc.getConf().get("spark.shuffle.useOldFetchProtocol", "false") == "true"
    answer, wide_reads, after = app.measured(read_wide)
    checks["right answer"] = answer == rows.want
    checks["every block from the service"] = wide_reads.local_blocks == 0 and wide_reads.remote_blocks > 0
    single = PARTITIONS * PARTITIONS
    batches = PARTITIONS * wide_rdd.getNumPartitions()
    checks["blocks in batches"] = batches < single and \
        wide_reads.remote_blocks == (single if old_protocol else batches)

    app.sc.setLocalProperty(BATCH_FETCH, "false")
    answer, single_reads, more = app.measured(read_wide)
    after += more
    checks["right answer, block by block"] = answer == rows.want
    checks["every block of its own"] = (single_reads.remote_blocks, single_reads.local_blocks) == (single, 0)
    app.sc.setLocalProperty(BATCH_FETCH, "true")

    answer, sorted_reads, more = app.measured(lambda: tuple(ordered.agg(*rows.sorted_sums).collect()[0]))
    after += more
    checks["right answer of group, join and sort"] = answer == rows.want_sorted
    checks["all of group, join and sort from the service"] = sorted_reads.local_blocks == 0
    first, _, more = app.measured(lambda: [row.id for row in ordered.limit(3).collect()])
    after += more
    checks["right order"] = first == rows.want_first

    rdd_bytes = 0
    if cached is not None:
        answer, rdd_reads, more = app.measured(lambda: tuple(cached.agg(*rows.sums).collect()[0]))
        after += more
        rdd_bytes = rdd_reads.input_bytes
        checks["right answer from RDD blocks"] = answer == rows.want
        checks["RDD blocks were read"] = rdd_bytes > 0
        checks["RDD blocks are on disk"] = len(cluster.files("rdd_*")) == PARTITIONS
    pause("read")

    if cached is not None:
        if job["swap"] == "idle":
            app.wait_for_no_executor()
        cached.unpersist(True)
        wait_until("the RDD blocks to go", lambda: not cluster.files("rdd_*"))
        checks["RDD blocks are removed"] = True
    if job.get("remove"):
        app.wait_for_no_executor()
        # Of others the driver may have told the executors, and they have gone before they did it.
        pinned = {*shuffles(wide_rdd), *shuffles(ordered_rdd)}
        written = [cluster.files("shuffle_%d_*.data" % shuffle) for shuffle in pinned]
        checks["shuffles are on disk"] = len(written) > 2 and all(written)
        files = sum(written, [])
        for shuffle in pinned:
            app.scala.cleaner().get().doCleanupShuffle(shuffle, True)
        # the driver does not ask for the checksum files
        files += [f.replace(".data", ".index") for f in files]
        wait_until("the shuffles to go", lambda: not any(map(os.path.exists, files)))
        checks["shuffles are removed"] = True
    if job.get("control"):
        try:
            read_wide()
            checks["failure without a service"] = False
        except Exception as e:
            traceback.print_exc()
            checks["failure without a service"] = "FetchFailed" in str(e)
    if job.get("once"):
        checks["no stage tried twice"] = not app.stages_tried_twice()
    return {"checks": checks, "before_swap": vars(before),
            "after_swap": vars(after), "rdd_bytes": rdd_bytes,
            "batched_blocks": wide_reads.remote_blocks, "single_blocks": single_reads.remote_blocks}


def kill_all_at_end_of_input(lines):
    """Passes on the lines of standard input. Its end means that whoever started this is gone."""
    for _ in sys.stdin:
        lines.release()
    os.killpg(0, signal.SIGKILL)


def main():
    job = json.loads(sys.argv[1])
    if os.getpid() != os.getpgrp():
        os.setsid()
    # JVMs write to the standard output too: keep it for the events alone
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(LIMIT)
    lines = threading.Semaphore(0)
    threading.Thread(target=kill_all_at_end_of_input, args=(lines,), daemon=True).start()

    def say(event, **more):
        print(json.dumps({"event": event, **more}), file=events, flush=True)

    def pause(event):
        say(event)
        lines.acquire()

    started = time.monotonic()
    cluster = Cluster(os.path.abspath(job["home"]), os.path.abspath(job["dir"]))
    try:
        app = Application(cluster, job["port"], job)
        try:
            result = run(job, cluster, app, pause)
        except Exception as e:
            traceback.print_exc()
            result = {"failed": str(e) or repr(e)}
        result["seconds"] = round(time.monotonic() - started, 1)
        say("result", **result)
        app.spark.stop()
    finally:
        cluster.stop()


main()
