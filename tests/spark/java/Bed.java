import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/** Options, report and Spark client of a bed program. */
final class Bed {
  private final Map<String, String> options = new HashMap<>();

  /** From arguments of the form name=value. Ends the program with its standard input. */
  Bed(String[] arguments) {
    for (String argument : arguments) {
      int equals = argument.indexOf('=');
      if (equals < 0) {
        throw new IllegalArgumentException("want name=value, not " + argument);
      }
      options.put(argument.substring(0, equals), argument.substring(equals + 1));
    }
    Thread watch = new Thread(Bed::endWithInput);
    watch.setDaemon(true);
    watch.start();
  }

  String option(String name) {
    String value = options.get(name);
    if (value == null) {
      throw new IllegalArgumentException("option " + name + " is missing");
    }
    return value;
  }

  String option(String name, String otherwise) {
    return options.getOrDefault(name, otherwise);
  }

  long number(String name, long otherwise) {
    String value = options.get(name);
    return value == null ? otherwise : Long.parseLong(value);
  }

  String host() {
    return option("host", "127.0.0.1");
  }

  int port() {
    return Integer.parseInt(option("port"));
  }

  /**
   * The client of that class, initialised for the application of option app. Options conf.K=V are its
   * configuration; option secret turns authentication on.
   */
  Object client(Class<?> type) throws Exception {
    Map<String, String> conf = new HashMap<>();
    options.forEach(
        (name, value) -> {
          if (name.startsWith("conf.")) {
            conf.put(name.substring("conf.".length()), value);
          }
        });
    Object provider = Reflect.construct(Reflect.type("util.MapConfigProvider"), conf);
    Object transport = Reflect.construct(Reflect.type("util.TransportConf"), "shuffle", provider);
    String secret = options.get("secret");
    Object keys =
        Reflect.implement(
            Reflect.type("sasl.SecretKeyHolder"),
            (proxy, method, arguments) ->
                method.getName().equals("getSaslUser") ? "sparkSaslUser" : secret);
    Object client = Reflect.construct(type, transport, keys, secret != null, 5000L);
    Reflect.call(client, "init", option("app"));
    return client;
  }

  /** Whoever started the program may have been killed. */
  private static void endWithInput() {
    try {
      while (System.in.read() >= 0) {
        continue;
      }
    } catch (IOException e) {
      System.err.println(e);
    }
    Runtime.getRuntime().halt(1);
  }

  /** One result, for whoever reads the standard output. */
  static void check(String name, boolean ok, String detail) {
    say("check", name, ",\"ok\":" + ok + ",\"detail\":" + quote(detail));
  }

  /** Something that happened. */
  static void event(String name) {
    say("event", name, "");
  }

  /** The first line of what went wrong. */
  static String line(Throwable e) {
    return e.toString().split("\n", 2)[0];
  }

  private static synchronized void say(String kind, String name, String more) {
    System.out.println("{\"" + kind + "\":" + quote(name) + more + "}");
    System.out.flush();
  }

  private static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
