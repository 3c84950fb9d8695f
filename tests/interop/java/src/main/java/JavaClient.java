import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;
import io.openmessaging.storage.dledger.protocol.LeadershipTransferResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HexFormat;
import java.util.List;

/**
 * DLedger's own client, driven by lines: arguments GROUP PEERS, then one command a line.
 *
 * <pre>
 *   append HEX                 index, pos and term of the answer
 *   get INDEX                  the same of the entry, and its body in hex
 *   transfer FROM TO TERM      asks FROM to hand its leadership to TO
 * </pre>
 *
 * Each is answered with one line, `CODE INDEX POS TERM =HEX`; -1 and - stand for what there is not.
 */
public final class JavaClient {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // for what the libraries print
        DLedgerClient client = new DLedgerClient(arguments[0], arguments[1]);
        client.startup();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                answers.println(answer(client, line.split(" ", -1)));
                answers.flush();
            }
        } finally {
            answers.close(); // at once, for whoever waits; the client's threads live on
        }
        client.shutdown();
        System.exit(0);
    }

    private static String answer(DLedgerClient client, String[] words) {
        switch (words[0]) {
            case "append":
                AppendEntryResponse appended = client.append(HexFormat.of().parseHex(words[1]));
                return appended.getCode() + " " + appended.getIndex() + " " + appended.getPos()
                    + " " + appended.getTerm() + " -";
            case "get":
                GetEntriesResponse got = client.get(Long.parseLong(words[1]));
                List<DLedgerEntry> entries = got.getEntries();
                if (entries == null || entries.isEmpty()) {
                    return got.getCode() + " -1 -1 -1 -";
                }
                DLedgerEntry entry = entries.get(0);
                return got.getCode() + " " + entry.getIndex() + " " + entry.getPos() + " "
                    + entry.getTerm() + " =" + HexFormat.of().formatHex(entry.getBody());
            case "transfer":
                LeadershipTransferResponse transferred =
                    client.leadershipTransfer(words[1], words[2], Long.parseLong(words[3]));
                return transferred.getCode() + " -1 -1 " + transferred.getTerm() + " -";
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }
}
