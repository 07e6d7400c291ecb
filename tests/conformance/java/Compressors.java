// Compresses the file `body` with each of RocketMQ 5's algorithms, and reads what we have compressed.
// Run it in a folder with `body`, `ours.zlib`, `ours.lz4` and `ours.zstd`.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.Compressor;
import org.apache.rocketmq.common.compression.CompressorFactory;

public class Compressors {
    public static void main(String[] arguments) throws Exception {
        byte[] body = Files.readAllBytes(Path.of("body"));
        for (String name : new String[] {"zlib", "lz4", "zstd"}) {
            CompressionType type = CompressionType.valueOf(name.toUpperCase());
            Compressor compressor = CompressorFactory.getCompressor(type);
            Files.write(Path.of("theirs." + name), compressor.compress(body, 5));
            byte[] ours = compressor.decompress(Files.readAllBytes(Path.of("ours." + name)));
            System.out.println(name + " of ours is read: " + Arrays.equals(ours, body));
        }
    }
}
