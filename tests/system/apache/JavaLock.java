import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;

/** Takes the lock of a store directory the way a JVM does: says "locked" and holds it until standard input ends, or says "refused". */
public final class JavaLock {
    public static void main(String[] arguments) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(arguments[0], "rw")) {
            FileLock lock = file.getChannel().tryLock(0, 1, false);
            System.out.println(lock == null ? "refused" : "locked");
            System.out.flush();
            while (lock != null && System.in.read() >= 0) {
                continue;
            }
        }
    }
}
