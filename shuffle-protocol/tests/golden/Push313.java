// Prints push-3.1.3.json and bitmaps-0.9.0.json with Spark 3.1.3's own classes. See README.md.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.network.shuffle.protocol.BlockTransferMessage;
import org.apache.spark.network.shuffle.protocol.FinalizeShuffleMerge;
import org.apache.spark.network.shuffle.protocol.MergeStatuses;
import org.apache.spark.network.shuffle.protocol.PushBlockStream;
import org.roaringbitmap.RoaringBitmap;

public class Push313 {
    static final String TEXT = "\u30a2\u30d7\u30ea-\u00fc-\ud83d\ude00";
    static final String JSON_TEXT = "\\u30a2\\u30d7\\u30ea-\\u00fc-\\ud83d\\ude00";
    static final List<String> entries = new ArrayList<>();

    static void add(BlockTransferMessage message, String fields) {
        ByteBuffer bytes = message.toByteBuffer();
        StringBuilder hex = new StringBuilder();
        while (bytes.hasRemaining()) hex.append(String.format("%02x", bytes.get()));
        entries.add("  {\"kind\": \"blocktransfer\", \"name\": \"" + message.getClass().getSimpleName()
            + "\", \"fields\": {" + fields + "}, \"hex\": \"" + hex + "\", \"versions\": [\"3.1.3\"]}");
    }

    static void addBitmap(String name, RoaringBitmap bitmap) {
        bitmap.runOptimize();
        ByteBuffer bytes = ByteBuffer.allocate(bitmap.serializedSizeInBytes());
        bitmap.serialize(bytes);
        StringBuilder head = new StringBuilder();
        for (int i = 0; i < Math.min(bytes.capacity(), 96); i++) head.append(String.format("%02x", bytes.get(i)));
        entries.add("  {\"name\": \"" + name + "\", \"length\": " + bytes.capacity()
            + ", \"head\": \"" + head + "\"}");
    }

    static RoaringBitmap range(int from, int to) {
        RoaringBitmap made = new RoaringBitmap();
        made.add((long) from, (long) to);
        return made;
    }

    /** The even numbers from from on, count of them. */
    static RoaringBitmap even(int from, int count) {
        RoaringBitmap made = new RoaringBitmap();
        for (int i = 0; i < count; i++) made.add(from + 2 * i);
        return made;
    }

    static RoaringBitmap runsAndSingles(int containers) {
        RoaringBitmap made = range(0, 100);
        for (int key = 1; key < containers; key++) made.or(RoaringBitmap.bitmapOf(key << 16, (key << 16) + 7));
        return made;
    }

    static void push() {
        add(new PushBlockStream("app-1", 2, 4, 5, 6),
            "\"appId\": \"app-1\", \"shuffleId\": 2, \"mapIndex\": 4, \"reduceId\": 5, \"index\": 6");
        add(new PushBlockStream(TEXT, Integer.MAX_VALUE, 0, -1, Integer.MIN_VALUE),
            "\"appId\": \"" + JSON_TEXT + "\", \"shuffleId\": 2147483647, \"mapIndex\": 0, "
            + "\"reduceId\": -1, \"index\": -2147483648");
        add(new FinalizeShuffleMerge("app-1", 2), "\"appId\": \"app-1\", \"shuffleId\": 2");
        add(new FinalizeShuffleMerge(TEXT, -1), "\"appId\": \"" + JSON_TEXT + "\", \"shuffleId\": -1");
        add(new MergeStatuses(1,
                new RoaringBitmap[] {RoaringBitmap.bitmapOf(1, 2, 3, 100000), range(0, 12)},
                new int[] {0, 9}, new long[] {1, 4294967297L}),
            "\"shuffleId\": 1, \"bitmaps\": [[1, 2, 3, 100000], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]], "
            + "\"reduceIds\": [0, 9], \"sizes\": [1, 4294967297]");
        add(new MergeStatuses(1, new RoaringBitmap[0], new int[0], new long[0]),
            "\"shuffleId\": 1, \"bitmaps\": [], \"reduceIds\": [], \"sizes\": []");
    }

    static void bitmaps() {
        addBitmap("empty", new RoaringBitmap());
        addBitmap("array of 4096 values", even(0, 4096));
        addBitmap("bitmap of 4097 values", even(0, 4097));
        addBitmap("one full run", range(0, 65536));
        addBitmap("3 containers with runs, no offsets", runsAndSingles(3));
        addBitmap("4 containers with runs, with offsets", runsAndSingles(4));
        addBitmap("9 containers with runs, two flag bytes", runsAndSingles(9));
        RoaringBitmap mixed = range(0, 100);
        mixed.or(even(65536, 10000));
        mixed.add(-1);
        addBitmap("run, bitmap and array", mixed);
    }

    public static void main(String[] args) {
        if (args[0].equals("push")) push(); else bitmaps();
        System.out.println("[\n" + String.join(",\n", entries) + "\n]");
    }
}
