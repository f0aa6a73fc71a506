import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;

/** Spark's classes and methods by name: what differs between 2.4 and 4.x is found when a program runs. */
final class Reflect {
  private Reflect() {}

  /** The first class that exists under org.apache.spark.network. */
  static Class<?> type(String... names) throws ClassNotFoundException {
    for (String name : names) {
      try {
        return Class.forName("org.apache.spark.network." + name);
      } catch (ClassNotFoundException tryNext) {
        continue;
      }
    }
    throw new ClassNotFoundException(String.join(" or ", names));
  }

  /** Calls the method of this name that takes as many arguments as given, whoever may see it. */
  static Object call(Object target, String name, Object... arguments) throws Exception {
    for (Class<?> c = target.getClass(); c != null; c = c.getSuperclass()) {
      for (Method method : c.getDeclaredMethods()) {
        if (method.getName().equals(name)
            && method.getParameterCount() == arguments.length
            && !method.isBridge()
            && !Modifier.isAbstract(method.getModifiers())) {
          method.setAccessible(true);
          try {
            return method.invoke(target, arguments);
          } catch (InvocationTargetException e) {
            throw cause(e);
          }
        }
      }
    }
    throw new NoSuchMethodException(
        target.getClass().getName() + "." + name + " with " + arguments.length + " arguments");
  }

  static Object construct(Class<?> type, Object... arguments) throws Exception {
    for (Constructor<?> constructor : type.getDeclaredConstructors()) {
      if (accepts(constructor.getParameterTypes(), arguments)) {
        constructor.setAccessible(true);
        try {
          return constructor.newInstance(arguments);
        } catch (InvocationTargetException e) {
          throw cause(e);
        }
      }
    }
    throw new NoSuchMethodException("constructor of " + type.getName() + " for these arguments");
  }

  static Object field(Object target, String name) throws Exception {
    for (Class<?> c = target.getClass(); c != null; c = c.getSuperclass()) {
      for (Field field : c.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return field.get(target);
        }
      }
    }
    throw new NoSuchFieldException(target.getClass().getName() + "." + name);
  }

  /** An object of an interface whose calls all go to the handler, except those every object has. */
  static Object implement(Class<?> type, InvocationHandler handler) {
    return Proxy.newProxyInstance(
        type.getClassLoader(),
        new Class<?>[] {type},
        (proxy, method, arguments) -> {
          switch (method.getName()) {
            case "equals":
              return proxy == arguments[0];
            case "hashCode":
              return System.identityHashCode(proxy);
            case "toString":
              return type.getSimpleName();
            default:
              return handler.invoke(proxy, method, arguments);
          }
        });
  }

  private static boolean accepts(Class<?>[] parameters, Object[] arguments) {
    if (parameters.length != arguments.length) {
      return false;
    }
    for (int i = 0; i < parameters.length; i++) {
      if (!parameters[i].isPrimitive()
          && arguments[i] != null
          && !parameters[i].isInstance(arguments[i])) {
        return false;
      }
    }
    return true;
  }

  private static Exception cause(InvocationTargetException e) {
    return e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
  }
}
