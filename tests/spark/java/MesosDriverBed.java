import java.util.Map;

/**
 * A driver as Spark on Mesos has one: registers with a shuffle service and sends heartbeats for runMs
 * (ten minutes, if nobody kills it before), then closes its client.
 *
 * <p>MesosDriverBed port=P app=ID timeoutMs=N intervalMs=N [runMs=N] [host=H] [secret=S] [conf.K=V]...
 *
 * <p>Says "registered" once the service has answered, "connection closed" when the connection that
 * carries the heartbeats is gone, and "done" after runMs.
 */
public final class MesosDriverBed {
  private static final long POLL_MS = 20;

  private MesosDriverBed() {}

  public static void main(String[] arguments) throws Exception {
    Bed bed = new Bed(arguments);
    Object client =
        bed.client(
            Reflect.type(
                "shuffle.mesos.MesosExternalBlockStoreClient",
                "shuffle.mesos.MesosExternalShuffleClient"));
    Reflect.call(
        client,
        "registerDriverWithShuffleService",
        bed.host(),
        bed.port(),
        bed.number("timeoutMs", 0),
        bed.number("intervalMs", 0));
    long start = System.nanoTime();
    long run = bed.number("runMs", 600_000) * 1_000_000;
    boolean registered = false;
    boolean closed = false;
    while (System.nanoTime() - start < run) {
      if (!registered && heartbeats()) {
        registered = true;
        Bed.event("registered");
      }
      if (registered && !closed && !connected(client)) {
        closed = true;
        Bed.event("connection closed");
      }
      Thread.sleep(POLL_MS);
    }
    Reflect.call(client, "close");
    Bed.event("done");
  }

  /** The client starts its heartbeat thread when the service has acknowledged the registration. */
  private static boolean heartbeats() {
    return Thread.getAllStackTraces().keySet().stream()
        .anyMatch(thread -> thread.getName().contains("mesos-external-shuffle-client-heartbeater"));
  }

  private static boolean connected(Object client) throws Exception {
    Object factory = Reflect.field(client, "clientFactory");
    for (Object pool : ((Map<?, ?>) Reflect.field(factory, "connectionPool")).values()) {
      for (Object connection : (Object[]) Reflect.field(pool, "clients")) {
        if (connection != null && (boolean) Reflect.call(connection, "isActive")) {
          return true;
        }
      }
    }
    return false;
  }
}
