/* The way of a step through the engine: running its code, and making a turn of what came of it.

   Twins of Python methods, as in `kernel.c`, and for the same reason one file of over 600 lines. */

#include "json.h"

/* -- what the modules of Python have ---------------------------------------------------------------------------- */

static PyObject *Runner, *Builder, *Resident, *StepOperation, *Attempt, *Waits, *Outcome, *Record, *StepDone, *Raw;
static PyObject *Run, *RunStep, *Complete, *Completed, *Entry, *Turn, *StepTurn;
static PyObject *absent, *unread, *step_context, *running, *completed, *plain_result, *one, *empty;
static PyObject *arguments_bytes_max, *journal_records_warn, *turn_records_max;
static PyObject *to_row, *step_row, *encode_step_frontier;
static PyObject *plain_returned, *plain_take_result;

static Field attempt_resident, attempt_operation, attempt_number, attempt_unwanted, attempt_alone;
static Field runner_running, runner_steps_max, runner_queue, runner_server_is_due, runner_accepting, runner_stand_in;
static Field runner_clock, runner_finished, runner_ended, runner_waiting;
static Field step_location, step_spec, step_args, step_data, step_site, step_settled, step_attempts, step_next_at;
static Field step_own_digest, spec_function, spec_is_bare, spec_concurrency, spec_result, spec_what;
static Field codec_scalars, outcome_operation, outcome_body, outcome_known;
static Field resident_key, resident_epoch, resident_run, resident_next_seq, resident_attempts, resident_outcomes;
static Field resident_commands, resident_written, resident_following, resident_inbox, resident_saved_count;
static Field resident_saved_digest, resident_saved_run_status, inbox_unread;
static Field run_loop, run_pending, run_is_plain, run_outcome, loop_now, pending_operations, pending_timers;
static Field command_operation, complete_value, complete_abandoned, resident_parent, resident_last;
static Field resident_is_current, resident_in_flight, resident_queued, turn_entries, turn_expected_seq;

static PyObject *name_append, *name_start, *name_admit, *name_send_for_server, *name_limited, *name_encode, *name_note;
static PyObject *name_begin, *name_leave, *name_popleft, *name_raised, *name_returned, *name_take_result;
static PyObject *name_unstorable;
static PyObject *name_now, *name_deliver, *name_note_failure, *name_deliver_result, *name_describe, *name_frontier;

static const Known STEPS[] = {
    {"StepRunner", &Runner}, {"Resident", &Resident}, {"StepOperation", &StepOperation}, {"Attempt", &Attempt},
    {"Waits", &Waits}, {"Outcome", &Outcome}, {"StepDone", &StepDone}, {"Raw", &Raw}, {"ABSENT", &absent},
    {"UNREAD", &unread}, {"step_context", &step_context}, {"RECORDED_ARGUMENTS_BYTES_MAX", &arguments_bytes_max},
    {"PLAIN", &plain_result}, {"Turn", &Turn}, {NULL, NULL},
};

static const Wanted STEPS_FIELDS[] = {
    {"Attempt", "resident", &attempt_resident}, {"Attempt", "operation", &attempt_operation},
    {"Attempt", "number", &attempt_number}, {"Attempt", "unwanted", &attempt_unwanted},
    {"Attempt", "alone", &attempt_alone}, {"StepRunner", "ended", &runner_ended},
    {"StepRunner", "_waiting", &runner_waiting}, {"Resident", "queued", &resident_queued},
    {"StepRunner", "_running", &runner_running}, {"StepRunner", "_steps_max", &runner_steps_max},
    {"StepRunner", "_queue", &runner_queue}, {"StepRunner", "_server_is_due", &runner_server_is_due},
    {"StepRunner", "accepting", &runner_accepting}, {"StepRunner", "stand_in", &runner_stand_in},
    {"StepRunner", "_clock", &runner_clock}, {"StepRunner", "_finished", &runner_finished},
    {"StepOperation", "location", &step_location}, {"StepOperation", "spec", &step_spec},
    {"StepOperation", "args", &step_args}, {"StepOperation", "data", &step_data},
    {"StepOperation", "site", &step_site}, {"StepOperation", "settled", &step_settled},
    {"StepOperation", "attempts", &step_attempts}, {"StepOperation", "next_at", &step_next_at},
    {"StepOperation", "digest", &step_own_digest}, {"StepSpec", "function", &spec_function},
    {"StepSpec", "is_bare", &spec_is_bare}, {"StepSpec", "concurrency", &spec_concurrency},
    {"StepSpec", "result", &spec_result}, {"StepSpec", "what", &spec_what},
    {"ValueCodec", "scalars", &codec_scalars}, {"Resident", "attempts", &resident_attempts},
    {"Resident", "outcomes", &resident_outcomes}, {"Resident", "is_current", &resident_is_current},
    {"Resident", "following", &resident_following}, {"Resident", "in_flight", &resident_in_flight},
    {"Resident", "next_seq", &resident_next_seq}, {"Resident", "inbox", &resident_inbox},
    {"Inbox", "unread", &inbox_unread}, {"Turn", "entries", &turn_entries},
    {"Turn", "expected_seq", &turn_expected_seq}, {NULL, NULL, NULL},
};

static const Known TURNS[] = {
    {"TurnBuilder", &Builder}, {"Record", &Record}, {"Entry", &Entry}, {"StepTurn", &StepTurn}, {"Run", &Run},
    {"RunStep", &RunStep}, {"Complete", &Complete}, {"Completed", &Completed}, {"COMPLETED", &completed},
    {"RUNNING", &running}, {"JOURNAL_RECORDS_WARN", &journal_records_warn}, {"TURN_RECORDS_MAX", &turn_records_max},
    {"to_row", &to_row}, {"step_row", &step_row}, {"encode_step_frontier", &encode_step_frontier}, {NULL, NULL},
};

static const Wanted TURNS_FIELDS[] = {
    {"Outcome", "operation", &outcome_operation}, {"Outcome", "body", &outcome_body},
    {"Outcome", "known", &outcome_known}, {"Resident", "key", &resident_key}, {"Resident", "epoch", &resident_epoch},
    {"Resident", "run", &resident_run}, {"Resident", "commands", &resident_commands},
    {"Resident", "written", &resident_written}, {"Resident", "saved_count", &resident_saved_count},
    {"Resident", "saved_digest", &resident_saved_digest}, {"Resident", "saved_run_status", &resident_saved_run_status},
    {"Run", "loop", &run_loop}, {"Run", "pending", &run_pending}, {"Run", "is_plain", &run_is_plain},
    {"Run", "outcome", &run_outcome}, {"RunLoop", "now", &loop_now}, {"Pending", "operations", &pending_operations},
    {"Pending", "timers", &pending_timers}, {"RunStep", "operation", &command_operation},
    {"Complete", "value", &complete_value}, {"Complete", "abandoned", &complete_abandoned},
    {"Resident", "parent", &resident_parent}, {"Resident", "last", &resident_last}, {NULL, NULL, NULL},
};

/* 0, or -1 with an exception; lets go of the result. */
static inline int
carried_out(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *
wrong_call(const char *usage)
{
    PyErr_SetString(PyExc_TypeError, usage);
    return NULL;
}

/* -- attempts ---------------------------------------------------------------------------------------------------- */

static PyObject *
steps_start(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3) {
        return wrong_call("start() takes a resident, an operation and, perhaps, whether it is alone");
    }
    if (!is_a(args[0], Resident) || !is_a(args[1], StepOperation)) {
        return NULL;
    }
    PyObject *resident = args[0], *operation = args[1], *attempts = get(resident, resident_attempts);
    PyObject *location = get(operation, step_location);
    int known = PyDict_Contains(attempts, location);
    if (known < 0) {
        return NULL;
    }
    if (known || get(operation, step_settled) == Py_True || PyObject_IsTrue(get(operation, step_next_at))
        || get(self, runner_accepting) != Py_True) {
        Py_RETURN_NONE;
    }
    PyObject *number = PyNumber_Add(get(operation, step_attempts), one);
    PyObject *fields[] = {resident, operation, number, count == 3 ? args[2] : Py_False};
    PyObject *attempt = number == NULL ? NULL : PyObject_Vectorcall(Attempt, fields, 4, NULL);
    Py_XDECREF(number);
    if (attempt == NULL || PyDict_SetItem(attempts, location, attempt) < 0) {
        Py_XDECREF(attempt);
        return NULL;
    }
    int failed;
    int full = PyObject_RichCompareBool(get(self, runner_running), get(self, runner_steps_max), Py_GE);
    if (full || get(get(operation, step_spec), spec_concurrency) != Py_None) {
        failed = full < 0 || carried_out(PyObject_CallMethodOneArg(self, name_admit, attempt)) < 0;
    }
    else {
        failed = put_made(self, runner_running, PyNumber_Add(get(self, runner_running), one)) < 0
                 || carried_out(PyObject_CallMethodOneArg(get(self, runner_queue), name_append, attempt)) < 0
                 || (get(self, runner_server_is_due) != Py_True
                     && carried_out(PyObject_CallMethodNoArgs(self, name_send_for_server)) < 0);
    }
    Py_DECREF(attempt);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether the turn of a resident is stored and all that follows from it is to start one step. */
static inline int
only_starts(PyObject *resident, PyObject *result)
{
    return result == plain_result && get(resident, resident_is_current) == Py_True
           && get(resident, resident_following) != Py_None
           && !PyObject_IsTrue(get(get(resident, resident_inbox), inbox_unread));
}

static int
start_following(PyObject *self, PyObject *resident, PyObject *turn)
{
    PyObject *following = Py_NewRef(get(resident, resident_following));
    put_new(resident, resident_following, Py_None);
    put_new(resident, resident_in_flight, Py_None);
    PyObject *count = PyLong_FromSsize_t(PyObject_Size(get(turn, turn_entries)));
    PyObject *next = count == NULL ? NULL : PyNumber_Add(get(turn, turn_expected_seq), count);
    Py_XDECREF(count);
    int failed = put_made(resident, resident_next_seq, next);
    if (!failed) {
        PyObject *asked[] = {self, resident, following, Py_True};
        failed = carried_out(PyObject_VectorcallMethod(name_start, asked, 4, NULL));
    }
    Py_DECREF(following);
    return failed;
}

static PyObject *
steps_start_all(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        return wrong_call("start_all() takes residents, their turns and what came of those");
    }
    PyObject *all[3], *left = PyList_New(0);
    for (int i = 0; i < 3; i++) {
        all[i] = PySequence_Fast(args[i], "start_all() takes sequences");
    }
    int failed = left == NULL || all[0] == NULL || all[1] == NULL || all[2] == NULL;
    Py_ssize_t size = failed ? 0 : PySequence_Fast_GET_SIZE(all[0]);
    if (!failed && (size != PySequence_Fast_GET_SIZE(all[1]) || size != PySequence_Fast_GET_SIZE(all[2]))) {
        PyErr_SetString(PyExc_ValueError, "as many turns as residents, and as many results");
        failed = 1;
    }
    for (Py_ssize_t i = 0; !failed && i < size; i++) {
        PyObject *resident = PySequence_Fast_GET_ITEM(all[0], i), *turn = PySequence_Fast_GET_ITEM(all[1], i);
        PyObject *result = PySequence_Fast_GET_ITEM(all[2], i);
        if (!is_a(resident, Resident) || !is_a(turn, Turn)) {
            failed = 1;
        }
        else if (only_starts(resident, result)) {
            failed = start_following(self, resident, turn);
        }
        else {
            PyObject *rest = PyTuple_Pack(3, resident, turn, result);
            failed = rest == NULL || PyList_Append(left, rest) < 0;
            Py_XDECREF(rest);
        }
    }
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(all[i]);
    }
    if (failed) {
        Py_CLEAR(left);
    }
    return left;
}

static PyObject *
steps_begin(PyObject *self, PyObject *attempt)
{
    if (!is_a(attempt, Attempt)) {
        return NULL;
    }
    PyObject *operation = get(attempt, attempt_operation), *spec = get(operation, step_spec);
    PyObject *args = get(operation, step_args), *coroutine;
    if (args != Py_None && get(spec, spec_is_bare) == Py_True && get(self, runner_stand_in) == Py_None) {
        coroutine = PyObject_CallObject(get(spec, spec_function), args);
    }
    else {
        coroutine = PyObject_CallMethodOneArg(self, name_limited, attempt);
    }
    PyObject *context = coroutine == NULL ? NULL : PyContext_CopyCurrent(), *result = NULL;
    if (context == NULL || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        Py_XDECREF(coroutine);
        return NULL;
    }
    PySendResult sent = PYGEN_ERROR;
    PyObject *token = PyContextVar_Set(step_context, attempt);
    if (token != NULL) {
        Py_DECREF(token);
        sent = PyIter_Send(coroutine, Py_None, &result);
    }
    if (PyContext_Exit(context) < 0) {
        Py_CLEAR(result);
    }
    if (sent == PYGEN_NEXT && result != NULL) {
        PyObject *fields[] = {coroutine, context, result};
        Py_SETREF(result, PyObject_Vectorcall(Waits, fields, 3, NULL));
    }
    Py_DECREF(context);
    Py_DECREF(coroutine);
    return result;
}

/* What is stored of a value; NULL, perhaps with an exception, if only Python knows. */
static PyObject *
encoded_result(PyObject *spec, PyObject *value, int is_scalar)
{
    char buffer[BUFFER_SIZE], *end = is_scalar ? add_scalar(buffer, value) : NULL;
    if (end != NULL) {
        return PyBytes_FromStringAndSize(buffer, end - buffer);
    }
    return PyObject_CallMethodObjArgs(get(spec, spec_result), name_encode, value, get(spec, spec_what), NULL);
}

/* The body of its record; takes over the reference to the encoded value. */
static PyObject *
done_body(PyObject *operation, PyObject *number, PyObject *encoded)
{
    PyObject *data = get(operation, step_data), *value = PyObject_CallOneArg(Raw, encoded);
    int is_kept = PyBytes_GET_SIZE(data) <= PyLong_AsSsize_t(arguments_bytes_max);
    PyObject *args = is_kept ? PyObject_CallOneArg(Raw, data) : Py_NewRef(absent), *body = NULL;
    PyObject *digest = PyLong_FromUnsignedLong(crc32(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0));
    if (value != NULL && args != NULL && digest != NULL) {
        PyObject *fields[] = {value, number, args, digest, get(operation, step_site)};
        body = PyObject_Vectorcall(StepDone, fields, 5, NULL);
    }
    Py_DECREF(encoded);
    Py_XDECREF(value);
    Py_XDECREF(args);
    Py_XDECREF(digest);
    return body;
}

static PyObject *
steps_returned(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        return wrong_call("returned() takes an attempt and a value");
    }
    if (!is_a(args[0], Attempt)) {
        return NULL;
    }
    PyObject *attempt = args[0], *value = args[1], *operation = get(attempt, attempt_operation);
    PyObject *spec = get(operation, step_spec);
    if (!is_a(get(operation, step_data), (PyObject *)&PyBytes_Type)) {
        return NULL;
    }
    int is_scalar = is_scalar_of(get(get(spec, spec_result), codec_scalars), value);
    PyObject *encoded = is_scalar < 0 ? NULL : encoded_result(spec, value, is_scalar);
    if (is_scalar < 0) { /* a class that cannot be hashed */
        PyErr_Clear();
        PyObject *all[] = {self, attempt, value};
        return PyObject_Vectorcall(plain_returned, all, 3, NULL);
    }
    if (encoded == NULL) {
        PyObject *error = caught(), *told = PyObject_CallMethodObjArgs(self, name_unstorable, attempt, error, NULL);
        Py_XDECREF(error);
        return told;
    }
    PyObject *body = done_body(operation, get(attempt, attempt_number), encoded);
    if (body == NULL) {
        return NULL;
    }
    PyObject *noted = PyObject_CallMethodObjArgs(self, name_note, attempt, body, is_scalar ? value : unread, NULL);
    Py_DECREF(body);
    return noted;
}

static PyObject *
steps_note(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3) {
        return wrong_call("_note() takes an attempt, a body and, perhaps, what it decodes to");
    }
    if (!is_a(args[0], Attempt)) {
        return NULL;
    }
    PyObject *attempt = args[0], *resident = get(attempt, attempt_resident);
    PyObject *operation = get(attempt, attempt_operation);
    PyObject *attempts = get(resident, resident_attempts), *location = get(operation, step_location);
    if (get(attempt, attempt_unwanted) == Py_True || PyDict_GetItemWithError(attempts, location) != attempt) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *now = PyObject_CallMethodNoArgs(get(self, runner_clock), name_now);
    PyObject *fields[] = {operation, args[1], now, count == 3 ? args[2] : unread};
    PyObject *outcome = now == NULL ? NULL : PyObject_Vectorcall(Outcome, fields, 4, NULL);
    Py_XDECREF(now);
    if (outcome == NULL || PyList_Append(get(resident, resident_outcomes), outcome) < 0) {
        Py_XDECREF(outcome);
        return NULL;
    }
    Py_DECREF(outcome);
    if (PyDict_DelItem(attempts, location) < 0) {
        return NULL;
    }
    return PyObject_CallOneArg(get(self, runner_finished), resident);
}

/* An attempt is over that came to its end without waiting. */
static int
steps_ended(PyObject *self, PyObject *attempt, PyObject *value)
{
    PyObject *spec = get(get(attempt, attempt_operation), step_spec);
    int others_wait = PyObject_IsTrue(get(self, runner_waiting));
    if (others_wait || get(spec, spec_concurrency) != Py_None) {
        if (others_wait < 0 || carried_out(PyObject_CallMethodOneArg(self, name_leave, attempt)) < 0) {
            return -1;
        }
    }
    else if (put_made(self, runner_running, PyNumber_Subtract(get(self, runner_running), one)) < 0) {
        return -1;
    }
    int is_scalar = 0;
    if (get(attempt, attempt_alone) == Py_True) {
        is_scalar = is_scalar_of(get(get(spec, spec_result), codec_scalars), value);
    }
    if (is_scalar <= 0) { /* below 0: a class that cannot be hashed, which the other one finds out too */
        PyErr_Clear();
        return carried_out(PyObject_CallMethodObjArgs(self, name_returned, attempt, value, NULL));
    }
    PyObject *pair = PyTuple_Pack(2, attempt, value);
    int failed = pair == NULL || carried_out(PyObject_CallMethodOneArg(get(self, runner_ended), name_append, pair)) < 0;
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

/* One attempt of those that are queued. 1: it has come to its end; 0: it is not wanted any more; 2: it waits. */
static int
serve_one(PyObject *self, PyObject *attempt, PyObject **waits)
{
    if (get(attempt, attempt_unwanted) == Py_True) {
        return carried_out(PyObject_CallMethodOneArg(self, name_leave, attempt));
    }
    PyObject *value = PyObject_CallMethodOneArg(self, name_begin, attempt);
    if (value == NULL) {
        PyObject *error = caught();
        int failed = carried_out(PyObject_CallMethodObjArgs(self, name_raised, attempt, error, NULL));
        Py_XDECREF(error);
        return failed ? -1 : 1;
    }
    if ((PyObject *)Py_TYPE(value) == Waits) {
        *waits = value;
        return 2;
    }
    int failed = steps_ended(self, attempt, value);
    Py_DECREF(value);
    return failed ? -1 : 1;
}

static PyObject *
steps_serve_some(PyObject *self, PyObject *room)
{
    Py_ssize_t most = PyLong_AsSsize_t(room), served = 0;
    if (most == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *queue = Py_NewRef(get(self, runner_queue)), *attempt = NULL, *waits = NULL, *result = NULL;
    int outcome;
    do {
        Py_XSETREF(attempt, PyObject_CallMethodNoArgs(queue, name_popleft));
        outcome = attempt == NULL || !is_a(attempt, Attempt) ? -1 : serve_one(self, attempt, &waits);
        served += outcome == 1;
    } while (outcome >= 0 && waits == NULL && served != most && PyObject_Size(queue) > 0);
    if (outcome >= 0) {
        result = Py_BuildValue("nOO", served, attempt, waits == NULL ? Py_None : waits);
    }
    Py_DECREF(queue);
    Py_XDECREF(attempt);
    Py_XDECREF(waits);
    return result;
}

static PyMethodDef STEPS_METHODS[] = {
    {"start", (PyCFunction)(void (*)(void))steps_start, METH_FASTCALL, NULL},
    {"start_all", (PyCFunction)(void (*)(void))steps_start_all, METH_FASTCALL, NULL},
    {"_begin", steps_begin, METH_O, NULL},
    {"_serve_some", steps_serve_some, METH_O, NULL},
    {"returned", (PyCFunction)(void (*)(void))steps_returned, METH_FASTCALL, NULL},
    {"_note", (PyCFunction)(void (*)(void))steps_note, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* -- turns ------------------------------------------------------------------------------------------------------- */

/* The later of two moments, borrowed. NULL with an exception. */
static PyObject *
later(PyObject *first, PyObject *second)
{
    int is_later = PyObject_RichCompareBool(first, second, Py_GE);
    return is_later < 0 ? NULL : is_later ? first : second;
}

static int
add_entry(PyObject *entries, PyObject *row)
{
    PyObject *entry = row == NULL ? NULL : PyObject_CallOneArg(Entry, row);
    int failed = entry == NULL || PyList_Append(entries, entry) < 0;
    Py_XDECREF(entry);
    return failed ? -1 : 0;
}

/* Whether the result of an attempt is all there is to know for the next turn of its run. */
static int
is_all(PyObject *attempt, PyObject *resident, PyObject *run, PyObject *operation)
{
    if ((PyObject *)Py_TYPE(run) != Run || get(run, run_is_plain) != Py_True || get(operation, step_settled) == Py_True
        || PyDict_GET_SIZE(get(get(run, run_pending), pending_operations)) != 1
        || PyObject_IsTrue(get(get(resident, resident_inbox), inbox_unread))
        || PyList_GET_SIZE(get(resident, resident_outcomes)) || PyList_GET_SIZE(get(resident, resident_commands))
        || PyObject_IsTrue(get(resident, resident_written))) {
        return 0;
    }
    PyObject *location = get(operation, step_location);
    return PyDict_GetItemWithError(get(resident, resident_attempts), location) == attempt;
}

/* What is to be stored when the run waits for one step and for nothing else. */
static PyObject *
going_on(PyObject *resident, PyObject *step, PyObject *seq, PyObject *at, PyObject *entries)
{
    PyObject *asked[] = {seq, step}, *frontier = PyObject_Vectorcall(encode_step_frontier, asked, 2, NULL);
    if (frontier == NULL) {
        return NULL;
    }
    put_new(resident, resident_following, step);
    put_new(resident, resident_saved_count, one);
    put_new(resident, resident_saved_digest, get(step, step_own_digest));
    put_new(resident, resident_saved_run_status, running);
    PyObject *fields[] = {get(resident, resident_key), get(resident, resident_epoch), one, seq, entries, running,
                          Py_None, at, frontier};
    PyObject *turn = PyObject_Vectorcall(StepTurn, fields, 9, NULL);
    Py_DECREF(frontier);
    return turn;
}

/* The step that the code asked for, if it asked for that and for nothing else; borrowed. */
static PyObject *
only_step(PyObject *run, PyObject *commands, PyObject *seq)
{
    if (get(run, run_is_plain) != Py_True || get(run, run_outcome) != Py_None || PyList_GET_SIZE(commands) != 1
        || PyDict_GET_SIZE(get(get(run, run_pending), pending_operations)) != 1
        || PyObject_RichCompareBool(seq, journal_records_warn, Py_EQ)) {
        return NULL;
    }
    PyObject *command = PyList_GET_ITEM(commands, 0);
    return (PyObject *)Py_TYPE(command) == RunStep ? get(command, command_operation) : NULL;
}

/* What is to be stored when the run has come to its end, if nobody but its caller is to hear of it; else NULL, perhaps
   without an exception. */
static PyObject *
completing(PyObject *resident, PyObject *run, PyObject *commands, PyObject *seq, PyObject *at, PyObject *entries)
{
    PyObject *outcome = get(run, run_outcome), *pending = get(run, run_pending);
    if ((PyObject *)Py_TYPE(outcome) != Complete || get(run, run_is_plain) != Py_True || PyList_GET_SIZE(commands)
        || PyDict_GET_SIZE(get(pending, pending_operations)) || get(resident, resident_parent) != Py_None
        || PyObject_RichCompareBool(seq, journal_records_warn, Py_EQ)) {
        return NULL;
    }
    PyObject *next = PyNumber_Add(seq, one), *last = NULL, *row = NULL, *turn = NULL;
    PyObject *value[] = {get(outcome, complete_value), get(outcome, complete_abandoned)};
    PyObject *body = next == NULL ? NULL : PyObject_Vectorcall(Completed, value, 2, NULL);
    PyObject *frontier = body == NULL ? NULL : PyObject_CallMethodNoArgs(run, name_frontier);
    if (frontier != NULL) {
        PyObject *fields[] = {next, at, empty, body};
        last = PyObject_Vectorcall(Record, fields, 4, NULL);
    }
    row = last == NULL ? NULL : PyObject_CallOneArg(to_row, last);
    if (row != NULL && add_entry(entries, row) == 0) {
        put_new(resident, resident_last, last);
        PyObject *fields[] = {get(resident, resident_key), get(resident, resident_epoch), one, seq, entries, completed,
                              Py_None, at, frontier};
        turn = PyObject_Vectorcall(Turn, fields, 9, NULL);
    }
    Py_XDECREF(next);
    Py_XDECREF(body);
    Py_XDECREF(frontier);
    Py_XDECREF(last);
    Py_XDECREF(row);
    return turn;
}

/* What is to be stored now that the record at `seq` has been delivered. */
static PyObject *
describe(PyObject *self, PyObject *resident, PyObject *run, PyObject *commands, PyObject *seq, PyObject *at,
         PyObject *now, PyObject *entries)
{
    PyObject *step = only_step(run, commands, seq);
    if (step != NULL) {
        return going_on(resident, step, seq, at, entries);
    }
    PyObject *turn = completing(resident, run, commands, seq, at, entries);
    if (turn != NULL || PyErr_Occurred()) {
        return turn;
    }
    return PyObject_CallMethodObjArgs(self, name_describe, resident, commands, seq, at, now, entries, NULL);
}

static PyObject *
turns_take_result(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        return wrong_call("take_result() takes an attempt, a value and the time");
    }
    if (!is_a(args[0], Attempt)) {
        return NULL;
    }
    PyObject *attempt = args[0], *value = args[1], *now = args[2];
    PyObject *resident = get(attempt, attempt_resident), *operation = get(attempt, attempt_operation);
    PyObject *run = get(resident, resident_run), *row = Py_None, *at = NULL, *seq = get(resident, resident_next_seq);
    if (is_all(attempt, resident, run, operation)) {
        at = later(now, get(get(run, run_loop), loop_now));
        PyObject *asked[] = {seq, at, operation, get(attempt, attempt_number), value};
        row = at == NULL ? NULL : PyObject_Vectorcall(step_row, asked, 5, NULL);
        if (row == NULL) {
            return NULL;
        }
    }
    if (row == Py_None) {
        PyObject *all[] = {self, attempt, value, now};
        return PyObject_Vectorcall(plain_take_result, all, 4, NULL);
    }
    Py_INCREF(seq);
    Py_INCREF(at);
    PyObject *entries = PyList_New(0), *commands = NULL, *turn = NULL;
    if (entries != NULL && add_entry(entries, row) == 0
        && PyDict_DelItem(get(resident, resident_attempts), get(operation, step_location)) == 0) {
        commands = PyObject_CallMethodObjArgs(run, name_deliver_result, seq, at, operation, value, NULL);
    }
    if (commands != NULL) {
        turn = describe(self, resident, run, commands, seq, at, now, entries);
    }
    Py_DECREF(row);
    Py_DECREF(seq);
    Py_DECREF(at);
    Py_XDECREF(entries);
    Py_XDECREF(commands);
    return turn;
}

/* Make a turn of one result. 1: it has one; 0: it is not as simple as most. */
static int
take_one(PyObject *self, PyObject *pair, PyObject *now, PyObject *moved, PyObject *turns)
{
    if (!is_a(pair, (PyObject *)&PyTuple_Type) || PyTuple_GET_SIZE(pair) != 2
        || !is_a(PyTuple_GET_ITEM(pair, 0), Attempt)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *attempt = PyTuple_GET_ITEM(pair, 0), *resident = get(attempt, attempt_resident);
    if (get(resident, resident_queued) == Py_True || get(attempt, attempt_unwanted) == Py_True
        || get(resident, resident_in_flight) != Py_None || get(resident, resident_is_current) != Py_True) {
        return 0;
    }
    PyObject *asked[] = {self, attempt, PyTuple_GET_ITEM(pair, 1), now};
    PyObject *turn = PyObject_VectorcallMethod(name_take_result, asked, 4, NULL);
    if (turn == NULL || turn == Py_None) {
        Py_XDECREF(turn);
        return turn == NULL ? -1 : 0;
    }
    put_new(resident, resident_in_flight, turn);
    int failed = PyList_Append(moved, resident) < 0 || PyList_Append(turns, turn) < 0;
    Py_DECREF(turn);
    return failed ? -1 : 1;
}

static PyObject *
turns_take_results(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        return wrong_call("take_results() takes what has ended, the time, and where residents and turns go");
    }
    PyObject *ended = args[0];
    if (!is_a(args[2], (PyObject *)&PyList_Type) || !is_a(args[3], (PyObject *)&PyList_Type)) {
        return NULL;
    }
    int taken = 1;
    while (taken == 1 && PyObject_Size(ended) > 0) {
        PyObject *pair = PySequence_GetItem(ended, 0);
        taken = pair == NULL ? -1 : take_one(self, pair, args[1], args[2], args[3]);
        Py_XDECREF(pair);
        if (taken == 1 && carried_out(PyObject_CallMethodNoArgs(ended, name_popleft)) < 0) {
            taken = -1;
        }
    }
    if (taken < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* One outcome becomes a record and is delivered. */
static int
take_outcome(PyObject *resident, PyObject *run, PyObject *outcome, PyObject *seq, PyObject *at, PyObject *entries)
{
    PyObject *fields[] = {seq, at, get(get(outcome, outcome_operation), step_location), get(outcome, outcome_body)};
    PyObject *record = PyObject_Vectorcall(Record, fields, 4, NULL), *asked = NULL;
    PyObject *row = record == NULL ? NULL : PyObject_CallOneArg(to_row, record);
    if (row != NULL && add_entry(entries, row) == 0) {
        asked = PyObject_CallMethodObjArgs(run, name_deliver, record, get(outcome, outcome_known), NULL);
    }
    Py_XDECREF(record);
    Py_XDECREF(row);
    if (asked == NULL) {
        return -1;
    }
    PyObject *commands = get(resident, resident_commands);
    Py_ssize_t size = PyList_GET_SIZE(commands);
    int failed = PyList_SetSlice(commands, size, size, asked);
    Py_DECREF(asked);
    return failed;
}

static PyObject *
turns_take_outcomes(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        return wrong_call("_take_outcomes() takes a resident, the time and entries");
    }
    if (!is_a(args[0], Resident) || !is_a(args[2], (PyObject *)&PyList_Type)) {
        return NULL;
    }
    PyObject *resident = args[0], *entries = args[2], *run = get(resident, resident_run);
    PyObject *outcomes = get(resident, resident_outcomes), *pending = get(run, run_pending);
    PyObject *at = later(args[1], get(get(run, run_loop), loop_now));
    long long seq = PyLong_AsLongLong(get(resident, resident_next_seq)) + PyList_GET_SIZE(entries);
    Py_ssize_t most = PyLong_AsSsize_t(turn_records_max), taken = 0;
    if (at == NULL || PyErr_Occurred()) {
        return NULL;
    }
    Py_INCREF(at);
    int failed = 0;
    while (!failed && taken < PyList_GET_SIZE(outcomes)) {
        PyObject *outcome = Py_NewRef(PyList_GET_ITEM(outcomes, taken++));
        PyObject *operation = get(outcome, outcome_operation);
        if (get(operation, step_settled) == Py_True) {
            Py_DECREF(outcome);
            continue;
        }
        PyObject *number = PyLong_FromLongLong(seq++);
        failed = number == NULL
                 || ((PyObject *)Py_TYPE(get(outcome, outcome_body)) != StepDone
                     && carried_out(PyObject_CallMethodObjArgs(self, name_note_failure, resident, outcome, NULL)) < 0)
                 || take_outcome(resident, run, outcome, number, at, entries) < 0;
        Py_XDECREF(number);
        Py_DECREF(outcome);
        if (PyDict_GET_SIZE(get(pending, pending_timers)) || get(run, run_outcome) != Py_None
            || PyList_GET_SIZE(entries) >= most) {
            break;
        }
    }
    Py_DECREF(at);
    if (failed || PyList_SetSlice(outcomes, 0, taken, NULL) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef TURNS_METHODS[] = {
    {"take_results", (PyCFunction)(void (*)(void))turns_take_results, METH_FASTCALL, NULL},
    {"take_result", (PyCFunction)(void (*)(void))turns_take_result, METH_FASTCALL, NULL},
    {"_take_outcomes", (PyCFunction)(void (*)(void))turns_take_outcomes, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* -- taking their places ----------------------------------------------------------------------------------------- */

static PyObject *
bind_steps(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (keep_known(given, STEPS) < 0 || find_fields(given, STEPS_FIELDS) < 0
        || replace_methods(Runner, STEPS_METHODS) < 0
        || (plain_returned = definition("StepRunner.returned")) == NULL) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
bind_turns(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (keep_known(given, TURNS) < 0 || find_fields(given, TURNS_FIELDS) < 0
        || replace_methods(Builder, TURNS_METHODS) < 0
        || (plain_take_result = definition("TurnBuilder.take_result")) == NULL) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef FUNCTIONS[] = {
    {"bind_steps", bind_steps, METH_O, NULL},
    {"bind_turns", bind_turns, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_engine", NULL, -1, FUNCTIONS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__engine(void)
{
    fill_crc_table();
    one = PyLong_FromLong(1);
    name_begin = name("_begin");
    name_leave = name("_leave");
    name_popleft = name("popleft");
    name_raised = name("_raised");
    name_returned = name("returned");
    name_unstorable = name("_unstorable");
    name_take_result = name("take_result");
    name_append = name("append");
    name_start = name("start");
    name_admit = name("_admit");
    name_send_for_server = name("_send_for_server");
    name_limited = name("_limited");
    name_encode = name("encode");
    name_note = name("_note");
    name_now = name("now");
    name_deliver = name("deliver");
    name_note_failure = name("_note_failure");
    name_deliver_result = name("deliver_result");
    name_describe = name("_describe");
    name_frontier = name("frontier");
    empty = PyUnicode_FromString("");
    return make_module(&MODULE);
}
