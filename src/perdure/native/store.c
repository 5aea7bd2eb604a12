/* Putting a group of plain turns and new runs together for the one statement that stores it (`store/sqlite/bulk.py`).

   Accelerated implementations of Python methods, as in `kernel.c`. The thread of the event loop waits for this: it needs
   the GIL. */

#include "fields.h"

static PyObject *Bulk, *Unusual, *Turn, *Entry, *Row, *NewRun, *Status, *terminal, *names_of_bulk, *first_position;
static PyObject *one, *zero, *name_bulk_bytes_max;

static Field bulk_stepped, bulk_advanced, bulk_finished, bulk_records, bulk_runs, bulk_parts, bulk_end, bulk_with_more;
static Field turn_key, turn_epoch, turn_generation, turn_expected_seq, turn_entries, turn_status, turn_wake_at, turn_at;
static Field turn_frontier, turn_consumed, turn_custom_status, turn_state, turn_notice, turn_continued, turn_pruned;
static Field turn_waits, turn_returned, turn_dead, entry_row, entry_effect;
static Field new_id, new_workflow, new_version, new_input_digest, new_started, new_created_at, new_parent, new_owner;

static const Known BULK[] = {
    {"Bulk", &Bulk, CLASS}, {"Unusual", &Unusual, CLASS}, {"Turn", &Turn, CLASS}, {"Entry", &Entry, CLASS},
    {"Row", &Row, CLASS}, {"NewRun", &NewRun, CLASS}, {"Status", &Status, CLASS}, {"TERMINAL", &terminal, SEVERAL},
    {"names", &names_of_bulk, NAMES}, {"FIRST_POSITION", &first_position, SEVERAL}, {NULL, NULL, ANY},
};

static const Wanted BULK_FIELDS[] = {
    {"Bulk", "_stepped", &bulk_stepped}, {"Bulk", "_advanced", &bulk_advanced}, {"Bulk", "_finished", &bulk_finished},
    {"Bulk", "_records", &bulk_records}, {"Bulk", "_runs", &bulk_runs}, {"Bulk", "_parts", &bulk_parts},
    {"Bulk", "_end", &bulk_end}, {"Bulk", "_with_more", &bulk_with_more}, {"Turn", "key", &turn_key},
    {"Turn", "epoch", &turn_epoch},
    {"Turn", "generation", &turn_generation}, {"Turn", "expected_seq", &turn_expected_seq},
    {"Turn", "entries", &turn_entries}, {"Turn", "status", &turn_status}, {"Turn", "wake_at", &turn_wake_at},
    {"Turn", "at", &turn_at}, {"Turn", "frontier", &turn_frontier}, {"Turn", "consumed", &turn_consumed},
    {"Turn", "custom_status", &turn_custom_status}, {"Turn", "state", &turn_state}, {"Turn", "notice", &turn_notice},
    {"Turn", "continued", &turn_continued}, {"Turn", "pruned", &turn_pruned}, {"Turn", "waits", &turn_waits},
    {"Turn", "returned", &turn_returned}, {"Turn", "dead", &turn_dead}, {"Entry", "row", &entry_row},
    {"Entry", "effect", &entry_effect}, {"NewRun", "id", &new_id}, {"NewRun", "workflow", &new_workflow},
    {"NewRun", "version", &new_version}, {"NewRun", "input_digest", &new_input_digest},
    {"NewRun", "started", &new_started}, {"NewRun", "created_at", &new_created_at}, {"NewRun", "parent", &new_parent},
    {"NewRun", "owner", &new_owner}, {NULL, NULL, NULL},
};

enum { ADD_STEP, ADD_TURN, ADD_RUN, BULK_SIZE };

static Accelerated BULK_METHODS[BULK_SIZE + 1];

/* -- looking, before anything is changed ----------------------------------------------------------------------------- */

/* The size of a list or a tuple, or -1. */
static inline Py_ssize_t
size_of(PyObject *sequence)
{
    return is_just(sequence, LIST) || is_just(sequence, TUPLE) ? PySequence_Fast_GET_SIZE(sequence) : -1;
}

/* The row of a record, borrowed; NULL, without an exception, if it is something else, or of another size. */
static inline PyObject *
row_in(PyObject *object, Field field)
{
    PyObject *row = exact(object, field, Row);
    return row != NULL && PyTuple_GET_SIZE(row) == 6 ? row : NULL;
}

/* Whether a value goes beside the others: nothing, or not too many bytes. */
static inline int
fits(PyObject *data, long long most)
{
    return data == Py_None || (is_just(data, BYTES) && PyBytes_GET_SIZE(data) <= most);
}

/* Whether all fields have a value. */
static int
has_all(PyObject *object, const Field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (get(object, fields[i]) == NULL) {
            return 0;
        }
    }
    return 1;
}

#define HAS_ALL(object, ...) \
    has_all(object, (const Field[]){__VA_ARGS__}, sizeof((const Field[]){__VA_ARGS__}) / sizeof(Field))

/* Whether the fields of the group are as they were made. */
static int
is_whole(PyObject *bulk, long long *end)
{
    return exact(bulk, bulk_stepped, LIST) != NULL && exact(bulk, bulk_advanced, LIST) != NULL
           && exact(bulk, bulk_finished, LIST) != NULL && exact(bulk, bulk_records, LIST) != NULL
           && exact(bulk, bulk_runs, LIST) != NULL && exact(bulk, bulk_parts, LIST) != NULL
           && is_number(get(bulk, bulk_end), end);
}

/* -- a row of the statement in the making ---------------------------------------------------------------------------- */

typedef struct {
    PyObject *items[24];
    Py_ssize_t count;
} Made;

/* Takes over the reference; -1, with an exception, without an item. */
static int
add_made(Made *row, PyObject *item)
{
    if (item != NULL) {
        row->items[row->count++] = item;
    }
    else if (!PyErr_Occurred()) { /* it was there when it was looked at */
        PyErr_SetString(PyExc_AttributeError, "a turn was changed while it was stored");
    }
    return item == NULL ? -1 : 0;
}

static int
add_item(Made *row, PyObject *item)
{
    return add_made(row, Py_XNewRef(item));
}

static int
add_items(Made *row, PyObject *object, const Field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (add_item(row, get(object, fields[i])) < 0) {
            return -1;
        }
    }
    return 0;
}

#define ADD_ITEMS(row, object, ...) \
    add_items(row, object, (const Field[]){__VA_ARGS__}, sizeof((const Field[]){__VA_ARGS__}) / sizeof(Field))

/* Where a value is among the bytes: its offset and its size, or two times nothing. */
static int
add_place(Made *row, PyObject *parts, long long *end, PyObject *data)
{
    if (data == Py_None) {
        return add_item(row, Py_None) < 0 || add_item(row, Py_None) < 0 ? -1 : 0;
    }
    if (!is_just(data, BYTES)) {
        return add_made(row, NULL);
    }
    Py_INCREF(data);
    long long begin = *end;
    *end += PyBytes_GET_SIZE(data);
    int failed = add_made(row, PyLong_FromLongLong(begin)) < 0
                 || add_made(row, PyLong_FromSsize_t(PyBytes_GET_SIZE(data))) < 0 || PyList_Append(parts, data) < 0;
    Py_DECREF(data);
    return failed ? -1 : 0;
}

/* Where what a run says of itself is among the bytes. */
static int
add_more(PyObject *bulk, Made *row, PyObject *parts, long long *end, PyObject *turn)
{
    if (get(turn, turn_custom_status) != Py_None || get(turn, turn_state) != Py_None) {
        put_new(bulk, bulk_with_more, Py_True);
    }
    return add_place(row, parts, end, get(turn, turn_custom_status)) < 0
                   || add_place(row, parts, end, get(turn, turn_state)) < 0
               ? -1
               : 0;
}

/* The row is complete: it goes to its list, if nothing went wrong. A tuple is made when all of its items are there, so
   that nobody ever sees one that is not filled. */
static int
end_row(Made *row, PyObject *rows, int failed)
{
    PyObject *made = failed ? NULL : PyTuple_New(row->count);
    for (Py_ssize_t i = 0; i < row->count; i++) {
        if (made != NULL) {
            PyTuple_SET_ITEM(made, i, row->items[i]);
        }
        else {
            Py_DECREF(row->items[i]);
        }
    }
    failed = made == NULL || PyList_Append(rows, made) < 0;
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

static PyObject *
settled(PyObject *self, long long end, int failed)
{
    if (failed || put_made(self, bulk_end, PyLong_FromLongLong(end)) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* -- the methods ----------------------------------------------------------------------------------------------------- */

/* The row of the one record of a step's turn, borrowed, if all is as usual; else NULL. */
static PyObject *
usual_step(PyObject *turn)
{
    PyObject *entries = get(turn, turn_entries), *frontier = exact(turn, turn_frontier, BYTES);
    PyObject *entry = size_of(entries) > 0 ? PySequence_Fast_GET_ITEM(entries, 0) : NULL;
    PyObject *row = is_just(entry, Entry) ? row_in(entry, entry_row) : NULL;
    long long seq, expected;
    if (row == NULL || frontier == NULL || !is_number(PyTuple_GET_ITEM(row, 0), &seq)
        || !is_number(get(turn, turn_expected_seq), &expected) || seq != expected
        || !is_just(PyTuple_GET_ITEM(row, 4), BYTES) || !HAS_ALL(turn, turn_key, turn_epoch)
        || PyBytes_GET_SIZE(PyTuple_GET_ITEM(row, 4)) + PyBytes_GET_SIZE(frontier)
               > limit(names_of_bulk, name_bulk_bytes_max)) {
        return NULL;
    }
    return row;
}

static PyObject *
bulk_add_step(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    long long begin;
    PyObject *record = has_just(1, count, names) && is_a(args[0], Turn) && is_whole(self, &begin) ? usual_step(args[0])
                                                                                                  : NULL;
    if (record == NULL) {
        PyErr_Clear();
        return call_python(&BULK_METHODS[ADD_STEP], self, args, count, names);
    }
    PyObject *turn = args[0], *data = PyTuple_GET_ITEM(record, 4), *frontier = Py_NewRef(get(turn, turn_frontier));
    PyObject *parts = Py_NewRef(get(self, bulk_parts)), *rows = Py_NewRef(get(self, bulk_stepped));
    long long after = begin + PyBytes_GET_SIZE(data), end = after + PyBytes_GET_SIZE(frontier);
    Made row = {.count = 0};
    Py_INCREF(record);
    int failed = ADD_ITEMS(&row, turn, turn_key, turn_epoch) < 0 || add_item(&row, PyTuple_GET_ITEM(record, 0)) < 0
                 || add_item(&row, PyTuple_GET_ITEM(record, 1)) < 0 || add_made(&row, PyLong_FromLongLong(after)) < 0
                 || add_made(&row, PyLong_FromSsize_t(PyBytes_GET_SIZE(frontier))) < 0
                 || add_item(&row, PyTuple_GET_ITEM(record, 3)) < 0 || add_item(&row, PyTuple_GET_ITEM(record, 5)) < 0
                 || add_made(&row, PyLong_FromLongLong(begin)) < 0
                 || add_made(&row, PyLong_FromSsize_t(PyBytes_GET_SIZE(data))) < 0
                 || PyList_Append(parts, data) < 0 || PyList_Append(parts, frontier) < 0;
    failed = end_row(&row, rows, failed) < 0;
    Py_DECREF(record);
    Py_DECREF(frontier);
    Py_DECREF(parts);
    Py_DECREF(rows);
    return settled(self, end, failed);
}

static int
is_terminal(PyObject *status)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(terminal); i++) {
        if (PyTuple_GET_ITEM(terminal, i) == status) {
            return 1;
        }
    }
    return 0;
}

/* Whether what a turn says of its run can go beside the others. */
static int
is_small(PyObject *turn, long long most)
{
    return fits(get(turn, turn_frontier), most) && fits(get(turn, turn_custom_status), most)
           && fits(get(turn, turn_state), most);
}

/* Whether a turn changes nothing but its own run, with records that can go beside the others. */
static int
is_usual_turn(PyObject *turn)
{
    long long expected, most = limit(names_of_bulk, name_bulk_bytes_max);
    if (get(turn, turn_continued) != Py_None || get(turn, turn_notice) != Py_None || get(turn, turn_waits) != Py_None
        || size_of(get(turn, turn_consumed)) || size_of(get(turn, turn_pruned)) || size_of(get(turn, turn_returned))
        || size_of(get(turn, turn_dead)) || !is_just(get(turn, turn_status), Status)
        || !is_number(get(turn, turn_expected_seq), &expected) || most < 0 || !is_small(turn, most)
        || !HAS_ALL(turn, turn_at, turn_wake_at, turn_key, turn_epoch, turn_generation)) {
        return 0;
    }
    PyObject *entries = get(turn, turn_entries);
    for (Py_ssize_t i = 0; i < size_of(entries); i++) {
        PyObject *entry = PySequence_Fast_GET_ITEM(entries, i);
        PyObject *row = is_just(entry, Entry) ? row_in(entry, entry_row) : NULL;
        if (row == NULL || get(entry, entry_effect) != Py_None || !is_just(PyTuple_GET_ITEM(row, 4), BYTES)
            || !fits(PyTuple_GET_ITEM(row, 4), most)) {
            return 0;
        }
    }
    return size_of(entries) >= 0;
}

/* One record of a turn. */
static int
add_record(PyObject *turn, PyObject *record, PyObject *records, PyObject *parts, long long *end)
{
    Made row = {.count = 0};
    int failed = ADD_ITEMS(&row, turn, turn_key, turn_generation) < 0;
    for (Py_ssize_t i = 0; !failed && i < 4; i++) {
        failed = add_item(&row, PyTuple_GET_ITEM(record, i)) < 0;
    }
    failed = failed || add_item(&row, PyTuple_GET_ITEM(record, 5)) < 0
             || add_place(&row, parts, end, PyTuple_GET_ITEM(record, 4)) < 0;
    return end_row(&row, records, failed);
}

/* All records of a turn; their number, or -1 with an exception. */
static Py_ssize_t
add_records(PyObject *bulk, PyObject *turn, PyObject *parts, long long *end)
{
    PyObject *entries = PySequence_Tuple(get(turn, turn_entries)), *records = exact(bulk, bulk_records, LIST);
    if (entries == NULL || records == NULL) {
        Py_XDECREF(entries);
        return PyErr_Occurred() ? -1 : add_made(NULL, NULL);
    }
    Py_INCREF(records);
    int failed = 0;
    Py_ssize_t count = PyTuple_GET_SIZE(entries);
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i), *record = is_just(entry, Entry) ? row_in(entry, entry_row) : NULL;
        Py_XINCREF(record);
        failed = record == NULL ? add_made(NULL, NULL) : add_record(turn, record, records, parts, end);
        Py_XDECREF(record);
    }
    Py_DECREF(entries);
    Py_DECREF(records);
    return failed ? -1 : count;
}

static PyObject *
bulk_add_turn(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    long long end, expected = 0;
    if (!has_just(1, count, names) || !is_a(args[0], Turn) || !is_whole(self, &end) || !is_usual_turn(args[0])) {
        PyErr_Clear();
        return call_python(&BULK_METHODS[ADD_TURN], self, args, count, names);
    }
    PyObject *turn = args[0], *status = get(turn, turn_status), *parts = Py_NewRef(get(self, bulk_parts));
    PyObject *rows = Py_NewRef(get(self, is_terminal(status) ? bulk_finished : bulk_advanced));
    Made row = {.count = 0};
    is_number(get(turn, turn_expected_seq), &expected);
    int failed = add_item(&row, status) < 0;
    Py_ssize_t records = failed ? -1 : add_records(self, turn, parts, &end);
    failed = records < 0 || add_made(&row, PyLong_FromLongLong(expected + records)) < 0
             || ADD_ITEMS(&row, turn, turn_at, turn_wake_at, turn_key, turn_epoch, turn_generation, turn_expected_seq) < 0
             || add_place(&row, parts, &end, get(turn, turn_frontier)) < 0
             || add_more(self, &row, parts, &end, turn) < 0;
    failed = end_row(&row, rows, failed) < 0;
    Py_DECREF(parts);
    Py_DECREF(rows);
    return settled(self, end, failed);
}

/* Whether a first turn begins where first turns begin. */
static int
is_first(PyObject *opening)
{
    PyObject *position[] = {get(opening, turn_epoch), get(opening, turn_generation), get(opening, turn_expected_seq)};
    for (Py_ssize_t i = 0; i < 3; i++) {
        long long expected, found;
        if (PyTuple_GET_SIZE(first_position) != 3 || !is_number(PyTuple_GET_ITEM(first_position, i), &expected) || !is_number(position[i], &found)
            || expected != found) {
            return 0;
        }
    }
    return 1;
}

/* Whether a first turn merely says what the run waits for. */
static int
is_usual_opening(PyObject *new, PyObject *opening)
{
    long long most = limit(names_of_bulk, name_bulk_bytes_max);
    PyObject *waits = get(opening, turn_waits), *status = get(opening, turn_status), *started = row_in(new, new_started);
    return get(new, new_parent) == Py_None && get(opening, turn_continued) == Py_None
           && size_of(get(opening, turn_entries)) == 0 && is_just(status, Status) && !is_terminal(status)
           && (waits == Py_None || (is_just(waits, DICT) && PyDict_GET_SIZE(waits) == 0)) && is_first(opening)
           && most >= 0 && started != NULL && fits(PyTuple_GET_ITEM(started, 4), most)
           && fits(get(new, new_input_digest), most) && is_small(opening, most)
           && HAS_ALL(new, new_id, new_workflow, new_version, new_owner, new_created_at)
           && get(opening, turn_wake_at) != NULL;
}

static PyObject *
bulk_add_run(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    long long end;
    if (!has_just(2, count, names) || !is_a(args[0], NewRun) || !is_a(args[1], Turn) || !is_whole(self, &end)
        || !is_usual_opening(args[0], args[1])) {
        PyErr_Clear();
        return call_python(&BULK_METHODS[ADD_RUN], self, args, count, names);
    }
    PyObject *new = args[0], *opening = args[1], *started = Py_NewRef(get(new, new_started));
    PyObject *parts = Py_NewRef(get(self, bulk_parts)), *rows = Py_NewRef(get(self, bulk_runs));
    Made row = {.count = 0};
    int failed = ADD_ITEMS(&row, new, new_id, new_workflow, new_version) < 0
                 || add_item(&row, get(opening, turn_status)) < 0
                 || add_item(&row, get(new, new_owner) == Py_None ? zero : one) < 0
                 || ADD_ITEMS(&row, new, new_owner, new_created_at) < 0
                 || add_item(&row, get(opening, turn_wake_at)) < 0
                 || add_place(&row, parts, &end, get(new, new_input_digest)) < 0
                 || add_place(&row, parts, &end, get(opening, turn_frontier)) < 0
                 || add_more(self, &row, parts, &end, opening) < 0;
    for (Py_ssize_t i = 0; !failed && i < 4; i++) {
        failed = add_item(&row, PyTuple_GET_ITEM(started, i)) < 0;
    }
    failed = failed || add_item(&row, PyTuple_GET_ITEM(started, 5)) < 0
             || add_place(&row, parts, &end, PyTuple_GET_ITEM(started, 4)) < 0;
    failed = end_row(&row, rows, failed) < 0;
    Py_DECREF(started);
    Py_DECREF(parts);
    Py_DECREF(rows);
    return settled(self, end, failed);
}

static Accelerated BULK_METHODS[BULK_SIZE + 1] = {
    ACCELERATED("_add_step", bulk_add_step),
    ACCELERATED("_add_turn", bulk_add_turn),
    ACCELERATED("_add_run", bulk_add_run),
    END_OF_METHODS,
};

static PyObject *
bind_bulk(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (take(given, BULK, BULK_FIELDS) < 0 || replace_methods(Bulk, BULK_METHODS) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef FUNCTIONS[] = {{"bind_bulk", bind_bulk, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_store", NULL, -1, FUNCTIONS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__store(void)
{
    one = PyLong_FromLong(1);
    zero = PyLong_FromLong(0);
    name_bulk_bytes_max = name("BULK_BYTES_MAX");
    return make_module(&MODULE);
}
