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

/* The value of a field, borrowed. Only for fields that are never without a value. */
static inline PyObject *
get(PyObject *object, Field field)
{
    return *(PyObject **)((char *)object + field);
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

/* Whether fields may be read from it; raises otherwise. Asked for whatever a caller hands in. */
static inline int
is_a(PyObject *object, PyObject *class)
{
    if (PyObject_TypeCheck(object, (PyTypeObject *)class)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "%s expected, not %s", ((PyTypeObject *)class)->tp_name, Py_TYPE(object)->tp_name);
    return 0;
}

/* Whether the exact type of a value is among those of a codec (`ValueCodec.scalars`, which are built-in types only). No
   other type is looked up: the hash of a class may be the user's (tests/values/test_odd_classes.py). */
static inline int
is_scalar_of(PyObject *scalars, PyObject *value)
{
    if (PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyBool_Check(value)
        || value == Py_None) {
        return PySet_Contains(scalars, (PyObject *)Py_TYPE(value));
    }
    return 0;
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

typedef struct {
    const char *class_name, *name;
    Field *field;
} Wanted;

/* Find the places of all `wanted` fields, in classes given by name, and keep the classes for ever. */
static int
find_fields(PyObject *given, const Wanted *wanted)
{
    for (; wanted->class_name != NULL; wanted++) {
        PyObject *class = PyDict_GetItemString(given, wanted->class_name);
        PyObject *member = class == NULL ? NULL : PyObject_GetAttrString(class, wanted->name);
        if (member == NULL || !Py_IS_TYPE(member, &PyMemberDescr_Type)
            || ((PyMemberDescrObject *)member)->d_member->type != T_OBJECT_EX) {
            PyErr_Format(
                PyExc_TypeError, "%s has no field %s with a place of its own", wanted->class_name, wanted->name);
            Py_XDECREF(member);
            return -1;
        }
        *wanted->field = ((PyMemberDescrObject *)member)->d_member->offset;
        Py_DECREF(member);
    }
    return 0;
}

typedef struct {
    const char *name;
    PyObject **object;
} Known;

/* Keep objects given by name, for ever. */
static int
keep_known(PyObject *given, const Known *known)
{
    for (; known->name != NULL; known++) {
        PyObject *object = PyDict_GetItemString(given, known->name);
        if (object == NULL) {
            PyErr_Format(PyExc_TypeError, "%s was not given", known->name);
            return -1;
        }
        Py_XSETREF(*known->object, Py_NewRef(object));
    }
    return 0;
}

/* The Python functions whose twins have taken their places, by qualified name. */
static PyObject *definitions;

/* Let methods in C take the places of those of the same names of a Python class. */
static int
replace_methods(PyObject *class, PyMethodDef *methods)
{
    for (; methods->ml_name != NULL; methods++) {
        PyObject *before = PyObject_GetAttrString(class, methods->ml_name);
        PyObject *name = before == NULL ? NULL : PyObject_GetAttrString(before, "__qualname__");
        PyObject *method = name == NULL ? NULL : PyDescr_NewMethod((PyTypeObject *)class, methods);
        int failed = method == NULL || PyDict_SetItem(definitions, name, before) < 0
                     || PyObject_SetAttrString(class, methods->ml_name, method) < 0;
        Py_XDECREF(before);
        Py_XDECREF(name);
        Py_XDECREF(method);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* The Python function of a twin, borrowed. */
static inline PyObject *
definition(const char *name)
{
    PyObject *found = PyDict_GetItemString(definitions, name);
    if (found == NULL) {
        PyErr_Format(PyExc_LookupError, "%s has not been replaced", name);
    }
    return found;
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
