package javax.annotation;

/** As the JDK had it before Java 9; generated code wears it, and nothing reads it. */
public @interface Generated {
    String[] value();

    String date() default "";

    String comments() default "";
}
