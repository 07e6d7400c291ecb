package standins;

import java.lang.reflect.Field;
import java.util.Set;
import javassist.util.proxy.ProxyFactory;
import javassist.util.proxy.ProxyObject;
import sun.misc.Unsafe;

/**
 * Objects of server classes without the server: made without their constructor, each method answered
 * by a function. What the function can't answer is {@link NotApplicable}, by name.
 */
final class StandIn {
    /** Answers a method, or throws {@link #unknown}. */
    interface Answers {
        Object to(String method, Object[] arguments) throws Exception;
    }

    private static final Set<String> OWN = Set.of("toString", "hashCode", "equals", "finalize");

    private StandIn() {
    }

    static <T> T of(Class<T> type, Answers answers) {
        ProxyFactory factory = new ProxyFactory();
        factory.setSuperclass(type);
        factory.setFilter(method -> !OWN.contains(method.getName()));
        try {
            Object made = unsafe().allocateInstance(factory.createClass());
            ((ProxyObject) made).setHandler(
                (self, method, original, arguments) -> answers.to(method.getName(), arguments));
            return type.cast(made);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    static NotApplicable unknown(Class<?> type, String method) {
        return new NotApplicable("calls " + type.getSimpleName() + "." + method);
    }

    private static Unsafe unsafe() throws ReflectiveOperationException {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (Unsafe) field.get(null);
    }
}
