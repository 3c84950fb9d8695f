import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.lang.reflect.Method;

/** Runs one member until a signal ends it. Arguments: KEY=VALUE, each a setter of DLedgerConfig. */
public final class JavaMember {
    public static void main(String[] arguments) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            set(config, argument.substring(0, at), argument.substring(at + 1));
        }
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
        Thread.currentThread().join();
    }

    private static void set(DLedgerConfig config, String key, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
        for (Method method : DLedgerConfig.class.getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                method.invoke(config, parsed(value, method.getParameterTypes()[0]));
                return;
            }
        }
        throw new IllegalArgumentException("DLedgerConfig has no option " + key);
    }

    private static Object parsed(String value, Class<?> type) {
        if (type == int.class) {
            return Integer.valueOf(value);
        }
        if (type == long.class) {
            return Long.valueOf(value);
        }
        if (type == boolean.class) {
            return Boolean.valueOf(value);
        }
        return value;
    }
}
