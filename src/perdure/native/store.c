/* Putting a group of plain turns and new runs together for the one statement that stores it (`store/sqlite/bulk.py`).

   Twins of Python methods, as in `kernel.c`. The thread of the event loop waits for this: it needs the interpreter. */

#include "fields.h"

static PyObject *Bulk, *Unusual, *Turn, *Entry, *Row, *NewRun, *terminal, *bytes_max, *first_position, *one, *zero;

static Field bulk_stepped, bulk_advanced, bulk_finished, bulk_records, bulk_runs, bulk_parts, bulk_end, bulk_with_more;
static Field turn_key, turn_epoch, turn_generation, turn_expected_seq, turn_entries, turn_status, turn_wake_at, turn_at;
static Field turn_frontier, turn_consumed, turn_custom_status, turn_state, turn_notice, turn_continued, turn_pruned;
static Field turn_waits, turn_returned, turn_dead, entry_row, entry_effect;
static Field new_id, new_workflow, new_version, new_input_digest, new_started, new_created_at, new_parent, new_owner;

static const Known BULK[] = {
    {"Bulk", &Bulk}, {"Unusual", &Unusual}, {"Turn", &Turn}, {"Entry", &Entry}, {"Row", &Row},
    {"NewRun", &NewRun}, {"TERMINAL", &terminal}, {"BULK_BYTES_MAX", &bytes_max}, {"FIRST_POSITION", &first_position},
    {NULL, NULL},
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

/* It has to go the long way. */
static int
unusual(void)
{
    PyErr_SetNone(Unusual);
    return -1;
}

/* A row of the statement in the making. */
typedef struct {
    PyObject *items;
    Py_ssize_t count;
} Made;

static int
begin_row(Made *row, Py_ssize_t size)
{
    row->items = PyTuple_New(size);
    row->count = 0;
    return row->items == NULL ? -1 : 0;
}

static inline void
add_item(Made *row, PyObject *item)
{
    PyTuple_SET_ITEM(row->items, row->count++, Py_NewRef(item));
}

static int
add_number(Made *row, long long number)
{
    PyObject *item = PyLong_FromLongLong(number);
    if (item == NULL) {
        return -1;
    }
    PyTuple_SET_ITEM(row->items, row->count++, item);
    return 0;
}

/* Where a value is among the bytes: its offset and its size, or two times nothing. */
static int
add_place(Made *row, PyObject *parts, long long *end, PyObject *data)
{
    if (data == Py_None) {
        add_item(row, Py_None);
        add_item(row, Py_None);
        return 0;
    }
    if (!PyBytes_Check(data) || PyBytes_GET_SIZE(data) > PyLong_AsSsize_t(bytes_max)) {
        return unusual();
    }
    if (add_number(row, *end) < 0 || add_number(row, PyBytes_GET_SIZE(data)) < 0 || PyList_Append(parts, data) < 0) {
        return -1;
    }
    *end += PyBytes_GET_SIZE(data);
    return 0;
}

/* Where what a run says of itself is among the bytes. */
static int
add_more(PyObject *bulk, Made *row, long long *end, PyObject *turn)
{
    PyObject *custom_status = get(turn, turn_custom_status), *state = get(turn, turn_state);
    PyObject *parts = get(bulk, bulk_parts);
    if (custom_status != Py_None || state != Py_None) {
        put_new(bulk, bulk_with_more, Py_True);
    }
    return add_place(row, parts, end, custom_status) < 0 || add_place(row, parts, end, state) < 0 ? -1 : 0;
}

/* The row is complete: it goes to its list, if nothing went wrong. */
static int
end_row(Made *row, PyObject *rows, int failed)
{
    failed = failed || PyList_Append(rows, row->items) < 0;
    Py_DECREF(row->items);
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

/* The row of a record; borrowed. */
static PyObject *
record_of(PyObject *entry)
{
    if (!is_a(entry, Entry)) {
        return NULL;
    }
    PyObject *record = get(entry, entry_row);
    return is_a(record, Row) ? record : NULL;
}

/* The data of a record, if it goes beside the others; borrowed. */
static PyObject *
data_of(PyObject *row)
{
    PyObject *data = PyTuple_GET_ITEM(row, 4);
    if (!PyBytes_Check(data) || PyBytes_GET_SIZE(data) > PyLong_AsSsize_t(bytes_max)) {
        unusual();
        return NULL;
    }
    return data;
}

static PyObject *
bulk_add_step(PyObject *self, PyObject *turn)
{
    if (!is_a(turn, Turn)) {
        return NULL;
    }
    PyObject *entries = get(turn, turn_entries), *frontier = get(turn, turn_frontier);
    PyObject *entry = PySequence_GetItem(entries, 0);
    if (entry == NULL) {
        return NULL;
    }
    Py_DECREF(entry); /* the turn has it */
    PyObject *record = record_of(entry);
    if (record == NULL) {
        return NULL;
    }
    PyObject *seq = PyTuple_GET_ITEM(record, 0), *data = PyTuple_GET_ITEM(record, 4);
    int fits = PyObject_RichCompareBool(seq, get(turn, turn_expected_seq), Py_EQ);
    if (fits < 0) {
        return NULL;
    }
    if (!fits || !PyBytes_Check(frontier) || !PyBytes_Check(data)
        || PyBytes_GET_SIZE(data) + PyBytes_GET_SIZE(frontier) > PyLong_AsSsize_t(bytes_max)) {
        unusual();
        return NULL;
    }
    long long begin = PyLong_AsLongLong(get(self, bulk_end));
    PyObject *parts = get(self, bulk_parts);
    Made row;
    if (begin_row(&row, 10) < 0) {
        return NULL;
    }
    add_item(&row, get(turn, turn_key));
    add_item(&row, get(turn, turn_epoch));
    add_item(&row, seq);
    add_item(&row, PyTuple_GET_ITEM(record, 1));
    int failed = add_number(&row, begin + PyBytes_GET_SIZE(data)) < 0
                 || add_number(&row, PyBytes_GET_SIZE(frontier)) < 0;
    if (!failed) {
        add_item(&row, PyTuple_GET_ITEM(record, 3));
        add_item(&row, PyTuple_GET_ITEM(record, 5));
        failed = add_number(&row, begin) < 0 || add_number(&row, PyBytes_GET_SIZE(data)) < 0
                 || PyList_Append(parts, data) < 0 || PyList_Append(parts, frontier) < 0;
    }
    failed = end_row(&row, get(self, bulk_stepped), failed);
    return settled(self, begin + PyBytes_GET_SIZE(data) + PyBytes_GET_SIZE(frontier), failed);
}

static int
is_empty(PyObject *sequence)
{
    return PyObject_Size(sequence) == 0;
}

/* Whether a turn changes nothing but its own run. */
static int
is_plain(PyObject *turn)
{
    return get(turn, turn_continued) == Py_None && get(turn, turn_notice) == Py_None
           && get(turn, turn_waits) == Py_None && is_empty(get(turn, turn_consumed))
           && is_empty(get(turn, turn_pruned)) && is_empty(get(turn, turn_returned)) && is_empty(get(turn, turn_dead));
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

/* One record of a turn. */
static int
add_record(PyObject *self, PyObject *turn, PyObject *entry, long long *end)
{
    PyObject *record = record_of(entry), *data = record == NULL ? NULL : data_of(record);
    if (data == NULL || get(entry, entry_effect) != Py_None) {
        return data == NULL ? -1 : unusual();
    }
    Made row;
    if (begin_row(&row, 9) < 0) {
        return -1;
    }
    add_item(&row, get(turn, turn_key));
    add_item(&row, get(turn, turn_generation));
    for (Py_ssize_t i = 0; i < 4; i++) {
        add_item(&row, PyTuple_GET_ITEM(record, i));
    }
    add_item(&row, PyTuple_GET_ITEM(record, 5));
    return end_row(&row, get(self, bulk_records), add_place(&row, get(self, bulk_parts), end, data));
}

static PyObject *
bulk_add_turn(PyObject *self, PyObject *turn)
{
    if (!is_a(turn, Turn)) {
        return NULL;
    }
    if (!is_plain(turn)) {
        unusual();
        return NULL;
    }
    PyObject *entries = PySequence_Fast(get(turn, turn_entries), "the entries of a turn are a sequence");
    if (entries == NULL) {
        return NULL;
    }
    long long end = PyLong_AsLongLong(get(self, bulk_end)), expected = PyLong_AsLongLong(get(turn, turn_expected_seq));
    Py_ssize_t count = PySequence_Fast_GET_SIZE(entries);
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        failed = add_record(self, turn, PySequence_Fast_GET_ITEM(entries, i), &end) < 0;
    }
    Py_DECREF(entries);
    PyObject *status = get(turn, turn_status), *parts = get(self, bulk_parts);
    Made row;
    if (failed || begin_row(&row, 14) < 0) {
        return NULL;
    }
    add_item(&row, status);
    failed = add_number(&row, expected + count) < 0;
    if (!failed) {
        add_item(&row, get(turn, turn_at));
        add_item(&row, get(turn, turn_wake_at));
        add_item(&row, get(turn, turn_key));
        add_item(&row, get(turn, turn_epoch));
        add_item(&row, get(turn, turn_generation));
        add_item(&row, get(turn, turn_expected_seq));
        failed = add_place(&row, parts, &end, get(turn, turn_frontier)) < 0 || add_more(self, &row, &end, turn) < 0;
    }
    failed = end_row(&row, get(self, is_terminal(status) ? bulk_finished : bulk_advanced), failed);
    return settled(self, end, failed);
}

/* Whether a first turn merely says what the run waits for, at the place where first turns begin. */
static int
is_plain_opening(PyObject *new, PyObject *opening)
{
    if (opening == Py_None || get(new, new_parent) != Py_None || get(opening, turn_continued) != Py_None
        || !is_empty(get(opening, turn_entries)) || is_terminal(get(opening, turn_status))
        || (get(opening, turn_waits) != Py_None && !is_empty(get(opening, turn_waits)))) {
        return 0;
    }
    PyObject *position[] = {get(opening, turn_epoch), get(opening, turn_generation), get(opening, turn_expected_seq)};
    for (Py_ssize_t i = 0; i < 3; i++) {
        if (PyObject_RichCompareBool(position[i], PyTuple_GET_ITEM(first_position, i), Py_EQ) != 1) {
            return 0;
        }
    }
    return 1;
}

static PyObject *
bulk_add_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "_add_run() takes a run and its first turn");
        return NULL;
    }
    PyObject *new = args[0], *opening = args[1];
    if (!is_a(new, NewRun) || (opening != Py_None && !is_a(opening, Turn)) || !is_a(get(new, new_started), Row)) {
        return NULL;
    }
    if (!is_plain_opening(new, opening)) {
        unusual();
        return NULL;
    }
    PyObject *started = get(new, new_started), *parts = get(self, bulk_parts), *owner = get(new, new_owner);
    long long end = PyLong_AsLongLong(get(self, bulk_end));
    Made row;
    if (begin_row(&row, 23) < 0) {
        return NULL;
    }
    add_item(&row, get(new, new_id));
    add_item(&row, get(new, new_workflow));
    add_item(&row, get(new, new_version));
    add_item(&row, get(opening, turn_status));
    add_item(&row, owner == Py_None ? zero : one);
    add_item(&row, owner);
    add_item(&row, get(new, new_created_at));
    add_item(&row, get(opening, turn_wake_at));
    int failed = add_place(&row, parts, &end, get(new, new_input_digest)) < 0
                 || add_place(&row, parts, &end, get(opening, turn_frontier)) < 0
                 || add_more(self, &row, &end, opening) < 0;
    if (!failed) {
        for (Py_ssize_t i = 0; i < 4; i++) {
            add_item(&row, PyTuple_GET_ITEM(started, i));
        }
        add_item(&row, PyTuple_GET_ITEM(started, 5));
        failed = add_place(&row, parts, &end, PyTuple_GET_ITEM(started, 4)) < 0;
    }
    failed = end_row(&row, get(self, bulk_runs), failed);
    return settled(self, end, failed);
}

static PyMethodDef BULK_METHODS[] = {
    {"_add_step", bulk_add_step, METH_O, NULL},
    {"_add_turn", bulk_add_turn, METH_O, NULL},
    {"_add_run", (PyCFunction)(void (*)(void))bulk_add_run, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
bind_bulk(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (keep_known(given, BULK) < 0 || find_fields(given, BULK_FIELDS) < 0 || replace_methods(Bulk, BULK_METHODS) < 0) {
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
    return make_module(&MODULE);
}
