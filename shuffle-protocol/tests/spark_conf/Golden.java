// Prints golden.json with Spark's own classes. See README.md.

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

import org.apache.spark.network.util.ByteUnit;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.util.Utils;

public class Golden {
    static final String[] PROPERTIES = {
        "", "\n", "a", "a=", "=b", ":", "=", "a=b", "a = b", "a: b", "a b", "a\tb", "a\fb", "a  =  b",
        "a = = b", "a == b", "a : = b", "a=:b", "a:=b", "a  b = c", "a b=c", "a=b=c", "a:b:c",
        "  a=b", "\t\fa=b", "a=b  ", "a=b\t\f ", "a=b\u00a0", "a=\u001fb\u001f", "a=\u007fb",
        "#c", "!c", "  # c", "#c\na=b", "!c\ra=b", "#c\\\na=b", "a=#b", "a=b #c", "a#=b", "a!b",
        "\\#a=b", "\\!a=b", "a\\=b=c", "a\\:b=c", "a\\ b=c", "a\\\tb=c", "\\ a=b", "a=\\ b", "a=b\\ ",
        "a=b\nc=d", "a=b\r\nc=d", "a=b\rc=d", "a=b\n\n\nc=d", "a=b\r\r\nc=d", "a=b\n \t\f\nc=d",
        "a=b\nA=c", "a=1\na=2", "a=1\nb=2\na=3", "a=1\na", "a\na=1",
        "a=b\\\nc", "a=b\\\n   c", "a=b\\\r\n\tc", "a=b\\\rc", "a=b\\\r\n", "a=b\\\n", "a=b\\", "a=b\\\\",
        "a=b\\\\\nc=d", "a=b\\\\\\\nc=d", "a=b\\\n\nc=d", "a=b\\\n\\\nc=d", "a=b\\\n  \nc=d",
        "a=b\\\n#c", "a=b\\\n!c\n", "a\\\nb=c", "a\\\n=b", "a\\\n  b  c", "a=\\\nb", "a =\\\n  b",
        "\\\na=b", "\\\n#a=b", "\\\n\\\n#a\nb=c", "\\", "\\\n", "\\\\", "\\\r\n", " \\", " \\\n a",
        "\\\n\na=b", "a=1\n\\", "a=1\n\\\n", "a\\", "a=b\\\n\r\nc=d", "a=b\\\r\rc=d", "a=b\\ \nc=d",
        "a=\\t\\n\\r\\f", "a=x\\ty\\nz\\rw\\fv", "a=\\a\\b\\0\\x\\\"\\'", "a=\\\\", "a=c:\\\\tmp", "a=c:\\tmp",
        "a=\\u0041", "\\u0041=b", "a=\\u00e9\\u00E9", "a=\\ud83d\\ude00", "a=\\ud83d", "a=\\ude00\\ud83d",
        "a\\u003d=b", "a\\u003db", "a=\\u0020b\\u0020", "a=\\u000ab", "a=b\\n", "a=\\nb", "a=b\\r\\n \\t",
        "a=\\u005cu0041", "a=\\\\u0041", "a=\\uuuu0041", "a=\\u", "a=\\u0", "a=\\u00", "a=\\u004", "a=\\u004g",
        "a=\\u00 41", "a\\u00=41", "a=\\U0041", "a=\\u+041", "a=\\u-041", "a=\\u\uff10\uff11\uff12\uff13",
        "a=1\nb=\\u12\nc=3", "a=\\u00\\\n41", "a=\\u00\\\r\n  41", "a=\\\\u004", "#\\uzzzz\na=b",
        "a=\u00e9\u4e2d\ud83d\ude00", "\u00e9=1", "\ufeffa=b", "a\u00a0b", "a\u2028b=c\u2028d", "a\u0085b=c",
        "a=b\u000bc", "a\u000bb=c", "a\u0000b=\u0000c", "a=\u0000",
        "spark.shuffle.service.port 7337", "spark.local.dir=/a,/b", "spark.x   a b c   ",
    };

    static final String[] TIMES = {
        "", " ", "0", "1", "7", "-1", "-5s", "+1", "007", "1us", "1ms", "1s", "1m", "1min", "1h", "1d",
        "50S", "50Ms", "2MIN", " 30s ", "\t30s\n", "30 s", "30\u00a0s", "3 0s", "1.5s", "1.5", ".5s", "s", "ms",
        "-", "--1", "1sec", "1seconds", "1ns", "1w", "1y", "1k", "1us1ms", "999ms", "1000ms", "1500ms", "-999ms",
        "-1500ms", "1999us", "-1999us", "90m", "25h", "9223372036854775807", "9223372036854775807us",
        "9223372036854775807ms", "9223372036854775807s", "9223372036854775807m", "9223372036854775807d",
        "-9223372036854775808", "-9223372036854775808d", "9223372036854775808", "-9223372036854775809",
        "106751991167d", "106751991168d", "99999999999999999999s", "0x10", "1e3", "1_000", "\u0661s", "1\u017f",
        "1\u212a", "infinity", "0s", "0d", "-0", "120s", "10000000000min",
    };

    static final String[] SIZES = {
        "", " ", "0", "1", "7", "-1", "-1k", "+1", "007", "1b", "1k", "1kb", "1m", "1mb", "1g", "1gb", "1t", "1tb",
        "1p", "1pb", "1e", "1eb", "1kib", "1mib", "1B", "1K", "1Kb", "1KB", "100M", " 64k ", "64 k", "1.5k", "1.5",
        "0.5g", ".5g", "1.", "1.k", "1.5x", "1.5.5k", "k", "b", "1kk", "1bytes", "1024", "1023", "1024k", "1023k",
        "1536b", "9223372036854775807", "9223372036854775807b", "9223372036854775808", "9007199254740991k",
        "9007199254740992k", "8191p", "8192p", "9223372036854775807p", "8388607t", "8388608t", "1\u212a", "0x10", "1_0", "0p",
        "2147483646", "2147483647",
    };

    public static void main(String[] args) throws Exception {
        List<String> properties = new ArrayList<>();
        for (String text : PROPERTIES) properties.add(properties(text));
        Random random = new Random(20240607);
        String[] parts = {"\\", "\\", "\\", "=", ":", " ", "\t", "\f", "#", "!", "\n", "\n", "\r", "\r\n",
            "a", "b", "u", "0", "\\u0041", "\\u005c"};
        for (int i = 0; i < 600; i++) {
            StringBuilder text = new StringBuilder();
            for (int n = 1 + random.nextInt(14); n > 0; n--) text.append(parts[random.nextInt(parts.length)]);
            properties.add(properties(text.toString()));
        }
        List<String> times = new ArrayList<>();
        for (String text : TIMES) {
            times.add("{\"text\": " + quote(text)
                + ", \"us\": " + time(text, TimeUnit.MICROSECONDS)
                + ", \"ms\": " + time(text, TimeUnit.MILLISECONDS)
                + ", \"s\": " + time(text, TimeUnit.SECONDS) + "}");
        }
        List<String> sizes = new ArrayList<>();
        for (String text : SIZES) {
            sizes.add("{\"text\": " + quote(text) + ", \"b\": " + size(text) + "}");
        }
        System.out.println("{\n\"properties\": [\n  " + String.join(",\n  ", properties) + "\n],\n\"times\": [\n  "
            + String.join(",\n  ", times) + "\n],\n\"sizes\": [\n  " + String.join(",\n  ", sizes) + "\n]\n}");
    }

    static String properties(String text) throws Exception {
        Path file = Files.createTempFile("golden", ".conf");
        Files.write(file, text.getBytes(StandardCharsets.UTF_8));
        String result;
        try {
            Map<String, String> sorted = new TreeMap<>();
            scala.collection.Iterator<scala.Tuple2<String, String>> all =
                Utils.getPropertiesFromFile(file.toString()).iterator();
            while (all.hasNext()) {
                scala.Tuple2<String, String> entry = all.next();
                sorted.put(entry._1(), entry._2());
            }
            List<String> entries = new ArrayList<>();
            sorted.forEach((key, value) -> entries.add(quote(key) + ": " + quote(value)));
            result = "\"entries\": {" + String.join(", ", entries) + "}";
        } catch (IllegalArgumentException refused) {
            result = "\"error\": " + quote(refused.getMessage());
        } finally {
            Files.delete(file);
        }
        return "{\"text\": " + quote(text) + ", " + result + "}";
    }

    static String time(String text, TimeUnit unit) {
        try {
            return Long.toString(JavaUtils.timeStringAs(text, unit));
        } catch (IllegalArgumentException refused) {
            return reason(refused);
        }
    }

    static String size(String text) {
        try {
            return Long.toString(JavaUtils.byteStringAs(text, ByteUnit.BYTE));
        } catch (IllegalArgumentException refused) {
            return reason(refused);
        }
    }

    // The first line, where there are two, is the same advice every time.
    static String reason(Exception refused) {
        String message = refused.getMessage();
        return quote(message.substring(1 + message.indexOf("\n", message.startsWith("Conversion") ? message.length() : 0)));
    }

    // A surrogate without its other half has no place in a JSON file: it becomes U+FFFD.
    static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        String whole = new String(text.getBytes(StandardCharsets.UTF_16BE), StandardCharsets.UTF_16BE);
        for (char c : whole.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < ' ' || c > '~') out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }
}
