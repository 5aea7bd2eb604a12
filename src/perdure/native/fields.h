/* What all files of this folder need: the fields of Python classes, and a few short ways to say usual things.

   A class with __slots__ (msgspec's are such classes) keeps each of its fields at a fixed place in the object. The
   places are looked up once, when a module of Python says which classes it has (`bind` of each file), so nothing here
   knows how a class is laid out, and a class that has no such field is refused with its name. */

#ifndef PERDURE_FIELDS_H
#define PERDURE_FIELDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

typedef Py_ssize_t Field;

/* The value of a field, borrowed; NULL, without an exception, if it has none: it may never have been given one, or have
   been deleted. What is read is looked at before it is used (`exact`, `is_just`, `is_number`), and a reference to it is
   kept while other code can run, which every call of Python and every new object may cause
   (tests/native/test_hostile_uses.py). */
static inline PyObject *
get(PyObject *object, Field field)
{
    return *(PyObject **)((char *)object + field);
}

/* The same if it is of exactly this type, else NULL. */
static inline PyObject *
exact(PyObject *object, Field field, PyObject *type)
{
    PyObject *value = get(object, field);
    return value != NULL && (PyObject *)Py_TYPE(value) == type ? value : NULL;
}

#define LIST ((PyObject *)&PyList_Type)
#define DICT ((PyObject *)&PyDict_Type)
#define TUPLE ((PyObject *)&PyTuple_Type)
#define TEXT ((PyObject *)&PyUnicode_Type)
#define BYTES ((PyObject *)&PyBytes_Type)
#define INT ((PyObject *)&PyLong_Type)
#define BOOL ((PyObject *)&PyBool_Type)

/* The value of a field, as a new reference. Without one Python raises what it raises for `object.name`. */
static inline PyObject *
attribute(PyObject *object, Field field, PyObject *name)
{
    PyObject *value = get(object, field);
    return value == NULL ? PyObject_GetAttr(object, name) : Py_NewRef(value);
}

/* Whether the value of a field is true; -1 with an exception. */
static inline int
is_true(PyObject *object, Field field, PyObject *name)
{
    PyObject *value = get(object, field);
    if (value == Py_True || value == Py_False) {
        return value == Py_True;
    }
    value = attribute(object, field, name);
    int answer = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return answer;
}

/* The number of a Python int; 0 if it is none, or too large to be added to. */
static inline int
is_number(PyObject *object, long long *number)
{
    int overflow;
    if (object == NULL || !PyLong_CheckExact(object)) {
        return 0;
    }
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *number < LLONG_MAX / 4 && *number > LLONG_MIN / 4;
}

/* Put a value there; takes over the reference. */
static inline void
put(PyObject *object, Field field, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)object + field), *before = *place;
    *place = value;
    Py_XDECREF(before);
}

static inline void
put_new(PyObject *object, Field field, PyObject *value)
{
    put(object, field, Py_NewRef(value));
}

/* Put something there that was just made; 0, or -1 if making it has raised. */
static inline int
put_made(PyObject *object, Field field, PyObject *made)
{
    if (made == NULL) {
        return -1;
    }
    put(object, field, made);
    return 0;
}

/* `object.name += change`, for a field that is an int; 0, or -1 with an exception. */
static int
change(PyObject *object, Field field, PyObject *name, PyObject *by, PyObject *(*made_by)(PyObject *, PyObject *))
{
    PyObject *before = attribute(object, field, name);
    PyObject *after = before == NULL ? NULL : made_by(before, by);
    Py_XDECREF(before);
    return put_made(object, field, after);
}

/* `object.name.append(item)`; 0, or -1 with an exception. */
static int
append_to(PyObject *object, Field field, PyObject *name, PyObject *item)
{
    PyObject *items = exact(object, field, LIST);
    if (items != NULL) {
        return PyList_Append(items, item);
    }
    items = attribute(object, field, name);
    PyObject *done = items == NULL ? NULL : PyObject_CallMethod(items, "append", "(O)", item);
    Py_XDECREF(items);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* 0, or -1 with an exception; lets go of the result. */
static inline int
carried_out(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Whether it is of this class or one derived from it, so that its fields may be read. */
static inline int
is_a(PyObject *object, PyObject *class)
{
    return object != NULL && PyObject_TypeCheck(object, (PyTypeObject *)class);
}

/* Whether it is of exactly this class. */
static inline int
is_just(PyObject *object, PyObject *class)
{
    return object != NULL && (PyObject *)Py_TYPE(object) == class;
}

/* A text that is compared and looked up often. */
static inline PyObject *
name(const char *text)
{
    return PyUnicode_InternFromString(text);
}

/* The error that was raised, with its traceback, as `except` has it; it is no longer raised. */
static inline PyObject *
caught(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

/* Raise an error that was caught; takes over the reference. */
static inline void
raise_again(PyObject *error)
{
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
}

/* Whether the exact type of a value is among those of a codec (`ValueCodec.scalars`, which are built-in types only). No
   other type is looked up: the hash of a class may be the user's (tests/values/test_odd_classes.py). */
static inline int
is_scalar_of(PyObject *scalars, PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    if (scalars == NULL || !PyAnySet_CheckExact(scalars)
        || !(type == INT || type == TEXT || type == BOOL || value == Py_None || type == (PyObject *)&PyFloat_Type)) {
        return 0;
    }
    int found = PySet_Contains(scalars, type);
    if (found < 0) {
        PyErr_Clear();
    }
    return found > 0;
}

/* -- what the modules of Python have, given once by each ------------------------------------------------------------ */

/* What `bind` keeps of a module. `kind` says what it must be: a class, an int, a tuple, a dictionary... */
typedef struct {
    const char *name;
    PyObject **object;
    enum { ANY, CLASS, NUMBER, SEVERAL, NAMES, CONTEXT_VARIABLE } kind;
} Known;

/* The place of a field in a class. */
typedef struct {
    const char *class_name, *name;
    Field *field;
} Wanted;

static int
is_of_kind(PyObject *object, const Known *known)
{
    switch (known->kind) {
    case CLASS: return PyType_Check(object);
    case NUMBER: return PyLong_CheckExact(object);
    case SEVERAL: return PyTuple_Check(object);
    case NAMES: return PyDict_CheckExact(object);
    case CONTEXT_VARIABLE: return PyContextVar_CheckExact(object);
    default: return 1;
    }
}

/* The place of a field, or -1 with an exception. */
static Field
place_of(PyObject *given, const Wanted *wanted)
{
    PyObject *class = PyDict_GetItemString(given, wanted->class_name);
    PyObject *member = class == NULL ? NULL : PyObject_GetAttrString(class, wanted->name);
    if (member == NULL || !PyType_Check(class) || !Py_IS_TYPE(member, &PyMemberDescr_Type)
        || !PyType_IsSubtype((PyTypeObject *)class, PyDescr_TYPE(member))
        || ((PyMemberDescrObject *)member)->d_member->type != T_OBJECT_EX) {
        PyErr_Format(PyExc_TypeError, "%s has no field %s with a place of its own", wanted->class_name, wanted->name);
        Py_XDECREF(member);
        return -1;
    }
    Field place = ((PyMemberDescrObject *)member)->d_member->offset;
    Py_DECREF(member);
    return place;
}

/* Keep what a module of Python gives by name, and find the places of fields in its classes. All of it is looked at
   before anything is kept, so a call with something else changes nothing. */
static int
take(PyObject *given, const Known *known, const Wanted *wanted)
{
    if (!PyDict_CheckExact(given)) {
        PyErr_SetString(PyExc_TypeError, "a dictionary by name expected");
        return -1;
    }
    for (const Known *each = known; each->name != NULL; each++) {
        PyObject *object = PyDict_GetItemString(given, each->name);
        if (object == NULL || !is_of_kind(object, each)) {
            PyErr_Format(PyExc_TypeError, "%s was not given, or is something else", each->name);
            return -1;
        }
    }
    for (const Wanted *each = wanted; each->class_name != NULL; each++) {
        if (place_of(given, each) < 0) {
            return -1;
        }
    }
    for (const Known *each = known; each->name != NULL; each++) {
        Py_XSETREF(*each->object, Py_NewRef(PyDict_GetItemString(given, each->name)));
    }
    for (const Wanted *each = wanted; each->class_name != NULL; each++) {
        *each->field = place_of(given, each);
    }
    return 0;
}

/* -- accelerated implementations and their definitions -------------------------------------------------------------- */

/* The Python functions whose places accelerated ones have taken, by qualified name. */
static PyObject *definitions;

/* An accelerated method: its function in C, which takes any arguments, and the Python function that is its definition,
   for everything unusual. */
typedef struct {
    PyMethodDef method; /* first, so that a descriptor of it leads here */
    PyObject *plain;
} Accelerated;

#define FUNCTION(name, function) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, NULL}
#define ACCELERATED(name, function) {FUNCTION(name, function), NULL}
#define END_OF_METHODS {{NULL, NULL, 0, NULL}, NULL}

/* Whether a call has so many arguments, and none of them by keyword. */
static inline int
has_just(Py_ssize_t wanted, Py_ssize_t count, PyObject *names)
{
    return count == wanted && (names == NULL || PyTuple_GET_SIZE(names) == 0);
}

/* Call the definition of a method. */
static PyObject *
call_python(Accelerated *method, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject **all = PyMem_New(PyObject *, count + named + 1);
    if (all == NULL) {
        return PyErr_NoMemory();
    }
    all[0] = self;
    for (Py_ssize_t i = 0; i < count + named; i++) {
        all[i + 1] = args[i];
    }
    PyObject *function = Py_NewRef(method->plain);
    PyObject *result = PyObject_Vectorcall(function, all, (size_t)count + 1, names);
    Py_DECREF(function);
    PyMem_Free(all);
    return result;
}

static vectorcallfunc usual_call;

/* A method called by its class, `Step.__call__(...)`: with something else for self, or with nothing, by its definition,
   as a function of Python takes anything. */
static PyObject *
call_descriptor(PyObject *descriptor, PyObject *const *args, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) > 0 && PyObject_TypeCheck(args[0], PyDescr_TYPE(descriptor))) {
        return usual_call(descriptor, args, flags, names);
    }
    PyObject *function = Py_NewRef(((Accelerated *)((PyMethodDescrObject *)descriptor)->d_method)->plain);
    PyObject *result = PyObject_Vectorcall(function, args, (size_t)PyVectorcall_NARGS(flags), names);
    Py_DECREF(function);
    return result;
}

/* Let accelerated methods take the places of those of the same names of a Python class. One that has been replaced before
   (a module that is loaded again) stays as it is: its definition must never be itself. */
static int
replace_methods(PyObject *class, Accelerated *methods)
{
    for (; methods->method.ml_name != NULL; methods++) {
        PyObject *before = PyObject_GetAttrString(class, methods->method.ml_name), *name = NULL, *method = NULL;
        if (before != NULL && !PyFunction_Check(before)) {
            Py_DECREF(before);
            continue;
        }
        name = before == NULL ? NULL : PyObject_GetAttrString(before, "__qualname__");
        method = name == NULL ? NULL : PyDescr_NewMethod((PyTypeObject *)class, &methods->method);
        if (method != NULL) {
            usual_call = ((PyMethodDescrObject *)method)->vectorcall;
            ((PyMethodDescrObject *)method)->vectorcall = call_descriptor;
            Py_XSETREF(methods->plain, Py_NewRef(before));
        }
        int failed = method == NULL || PyDict_SetItem(definitions, name, before) < 0
                     || PyObject_SetAttrString(class, methods->method.ml_name, method) < 0;
        Py_XDECREF(before);
        Py_XDECREF(name);
        Py_XDECREF(method);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* Call the definition of a function. */
static PyObject *
call_definition(const char *name, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *function = PyDict_GetItemString(definitions, name);
    if (function == NULL) {
        PyErr_Format(PyExc_LookupError, "%s has not been replaced", name);
        return NULL;
    }
    Py_INCREF(function);
    PyObject *result = PyObject_Vectorcall(function, args, (size_t)count, names);
    Py_DECREF(function);
    return result;
}

/* -- limits -------------------------------------------------------------------------------------------------------- */

/* A limit as it is now: tests lower limits, so none is kept. -1 with an exception. Zero or more is what counts; below
   that, everything is too much, as for Python. */
static long long
limit(PyObject *names, PyObject *name)
{
    PyObject *value = PyDict_GetItemWithError(names, name);
    long long number;
    if (is_number(value, &number)) {
        return number < 0 ? 0 : number;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "the limit %U is no int, or too large a one", name);
    }
    return -1;
}

/* Make the module, with its table of definitions. */
static PyObject *
make_module(struct PyModuleDef *made_from)
{
    PyObject *module = PyErr_Occurred() ? NULL : PyModule_Create(made_from);
    definitions = PyDict_New();
    if (module == NULL || definitions == NULL || PyModule_AddObjectRef(module, "definitions", definitions) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}

#endif
