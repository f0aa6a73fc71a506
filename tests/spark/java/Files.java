import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import java.util.zip.Adler32;

/** The files of one executor, laid out as Spark's DiskBlockManager does, and what they hold. */
final class Files {
  static final int SUB_DIRS = 64;

  final String[] localDirs;

  Files(File root) {
    localDirs =
        new String[] {
          new File(root, "d0/blockmgr-aaaa").getPath(), new File(root, "d1/blockmgr-bbbb").getPath()
        };
  }

  /** Where a file of this name belongs. */
  File place(String name) {
    int hash = name.hashCode();
    hash = hash == Integer.MIN_VALUE ? 0 : Math.abs(hash);
    String sub = String.format("%02x", hash / localDirs.length % SUB_DIRS);
    return new File(new File(localDirs[hash % localDirs.length], sub), name);
  }

  void write(String name, byte[] content) throws IOException {
    File file = place(name);
    java.nio.file.Files.createDirectories(file.getParentFile().toPath());
    java.nio.file.Files.write(file.toPath(), content);
  }

  /** Writes one map output: its data, index and checksum file. */
  void writeMapOutput(int shuffle, int map, byte[]... partitions) throws IOException {
    ByteArrayOutputStream index = new ByteArrayOutputStream();
    ByteArrayOutputStream checksums = new ByteArrayOutputStream();
    DataOutputStream offsets = new DataOutputStream(index);
    DataOutputStream sums = new DataOutputStream(checksums);
    long offset = 0;
    offsets.writeLong(offset);
    for (byte[] partition : partitions) {
      offset += partition.length;
      offsets.writeLong(offset);
      sums.writeLong(adler32(partition));
    }
    String name = "shuffle_" + shuffle + "_" + map + "_0";
    write(name + ".data", concat(partitions));
    write(name + ".index", index.toByteArray());
    write(name + ".checksum.ADLER32", checksums.toByteArray());
  }

  static byte[] random(Random random, int length) {
    byte[] bytes = new byte[length];
    random.nextBytes(bytes);
    return bytes;
  }

  static byte[] concat(byte[]... parts) {
    byte[] all = new byte[Arrays.stream(parts).mapToInt(part -> part.length).sum()];
    int at = 0;
    for (byte[] part : parts) {
      System.arraycopy(part, 0, all, at, part.length);
      at += part.length;
    }
    return all;
  }

  static long adler32(byte[] bytes) {
    Adler32 sum = new Adler32();
    sum.update(bytes);
    return sum.getValue();
  }
}
