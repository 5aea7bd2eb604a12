/* The way of a step through the engine: running its code, and making a turn of what came of it.

   Accelerated implementations of Python methods, as in `kernel.c`, and for the same reason one file of over 600 lines. */

#include "json.h"

/* -- what the modules of Python have ---------------------------------------------------------------------------- */

static PyObject *Runner, *Builder, *Resident, *StepOperation, *Attempt, *Waits, *Outcome, *Record, *StepDone, *Raw;
static PyObject *Run, *RunStep, *Complete, *Completed, *Entry, *Turn, *StepTurn;
static PyObject *StepSpec, *ValueCodec, *Inbox, *Loop, *Pending, *Queue;
static PyObject *absent, *unread, *step_context, *running, *completed, *plain_result, *one, *empty;
static PyObject *limits, *limits_of_turns, *to_row, *step_row, *encode_step_frontier;

static Field attempt_resident, attempt_operation, attempt_number, attempt_unwanted, attempt_alone, attempt_timer;
static Field attempt_has_left;
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
static PyObject *name_begin, *name_leave, *name_popleft, *name_raised, *name_returned, *name_take_result, *name_unstorable;
static PyObject *name_send, *name_value, *name_ended, *name_appendleft, *name_running;
static PyObject *name_recorded_arguments_bytes_max, *name_journal_records_warn, *name_turn_records_max;
static PyObject *name_now, *name_deliver, *name_note_failure, *name_deliver_result, *name_describe, *name_frontier;

static const Known STEPS[] = {
    {"StepRunner", &Runner, CLASS}, {"Resident", &Resident, CLASS}, {"StepOperation", &StepOperation, CLASS},
    {"Attempt", &Attempt, CLASS}, {"Waits", &Waits, CLASS}, {"Outcome", &Outcome, CLASS},
    {"StepDone", &StepDone, CLASS}, {"Raw", &Raw, CLASS}, {"Turn", &Turn, CLASS}, {"StepSpec", &StepSpec, CLASS},
    {"ValueCodec", &ValueCodec, CLASS}, {"Inbox", &Inbox, CLASS}, {"ABSENT", &absent, ANY}, {"UNREAD", &unread, ANY},
    {"PLAIN", &plain_result, ANY}, {"step_context", &step_context, CONTEXT_VARIABLE}, {"limits", &limits, NAMES},
    {NULL, NULL, ANY},
};

static const Wanted STEPS_FIELDS[] = {
    {"Attempt", "resident", &attempt_resident}, {"Attempt", "operation", &attempt_operation},
    {"Attempt", "number", &attempt_number}, {"Attempt", "unwanted", &attempt_unwanted},
    {"Attempt", "timer", &attempt_timer}, {"Attempt", "has_left", &attempt_has_left},
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
    {"TurnBuilder", &Builder, CLASS}, {"Record", &Record, CLASS}, {"Entry", &Entry, CLASS},
    {"StepTurn", &StepTurn, CLASS}, {"Run", &Run, CLASS}, {"RunStep", &RunStep, CLASS},
    {"Complete", &Complete, CLASS}, {"Completed", &Completed, CLASS}, {"RunLoop", &Loop, CLASS},
    {"Pending", &Pending, CLASS}, {"COMPLETED", &completed, ANY}, {"RUNNING", &running, ANY},
    {"limits", &limits_of_turns, NAMES}, {"to_row", &to_row, ANY}, {"step_row", &step_row, ANY},
    {"encode_step_frontier", &encode_step_frontier, ANY}, {NULL, NULL, ANY},
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

enum { START, START_ALL, BEGIN, SERVE_SOME, RETURNED, NOTE, STEPS_SIZE };
enum { TAKE_RESULTS, TAKE_RESULT, TAKE_OUTCOMES, TURNS_SIZE };

static Accelerated STEPS_METHODS[STEPS_SIZE + 1], TURNS_METHODS[TURNS_SIZE + 1];

/* A copy of some of the items of a tuple, from one on. */
static inline PyObject *
rest_of(PyObject *items, Py_ssize_t first)
{
    return PyTuple_GetSlice(items, first, PyTuple_GET_SIZE(items));
}

/* -- attempts ---------------------------------------------------------------------------------------------------- */

/* What an attempt has to do with, each with a reference of its own. */
typedef struct {
    PyObject *resident, *operation, *spec, *attempts, *location;
} Tried;

static void
let_go(Tried *all)
{
    Py_DECREF(all->resident);
    Py_DECREF(all->operation);
    Py_DECREF(all->spec);
    Py_DECREF(all->attempts);
    Py_DECREF(all->location);
}

/* 0, without an exception, if one of them is missing or something else. */
static int
find_all(PyObject *resident, PyObject *operation, Tried *all)
{
    PyObject *attempts, *location, *spec;
    if (!is_just(resident, Resident) || !is_just(operation, StepOperation)
        || (attempts = exact(resident, resident_attempts, DICT)) == NULL
        || (location = exact(operation, step_location, TEXT)) == NULL
        || (spec = exact(operation, step_spec, StepSpec)) == NULL) {
        return 0;
    }
    *all = (Tried){
        Py_NewRef(resident), Py_NewRef(operation), Py_NewRef(spec), Py_NewRef(attempts), Py_NewRef(location)};
    return 1;
}

static int
find_all_of(PyObject *attempt, Tried *all)
{
    return is_just(attempt, Attempt) && find_all(get(attempt, attempt_resident), get(attempt, attempt_operation), all);
}

/* An attempt that is admitted: it is queued, and somebody serves the queue. */
static int
admit(PyObject *self, PyObject *attempt)
{
    PyObject *queue = exact(self, runner_queue, Queue);
    if (queue == NULL) { /* Python says what is wrong with it */
        return carried_out(PyObject_CallMethodOneArg(self, name_admit, attempt));
    }
    Py_INCREF(queue);
    int failed = change(self, runner_running, name_running, one, PyNumber_Add) < 0
                 || carried_out(PyObject_CallMethodOneArg(queue, name_append, attempt)) < 0
                 || (get(self, runner_server_is_due) != Py_True
                     && carried_out(PyObject_CallMethodNoArgs(self, name_send_for_server)) < 0);
    Py_DECREF(queue);
    return failed ? -1 : 0;
}

/* Whether an attempt may begin that has not begun before. */
static int
may_start(PyObject *self, Tried *all, long long *tried)
{
    long long next_at;
    return get(all->operation, step_settled) == Py_False && is_number(get(all->operation, step_next_at), &next_at)
           && next_at == 0 && get(self, runner_accepting) == Py_True
           && is_number(get(all->operation, step_attempts), tried) && get(all->spec, spec_concurrency) != NULL
           && exact(self, runner_server_is_due, BOOL) != NULL && exact(self, runner_queue, Queue) != NULL
           && PyDict_Contains(all->attempts, all->location) == 0;
}

static PyObject *
steps_start(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Tried all;
    long long tried, now_running, most;
    int is_usual = (has_just(2, count, names) || has_just(3, count, names)) && is_just(self, Runner)
                   && is_number(get(self, runner_running), &now_running)
                   && is_number(get(self, runner_steps_max), &most) && find_all(args[0], args[1], &all);
    if (is_usual && !may_start(self, &all, &tried)) {
        let_go(&all);
        is_usual = 0;
    }
    if (!is_usual) {
        return PyErr_Occurred() ? NULL : call_python(&STEPS_METHODS[START], self, args, count, names);
    }
    PyObject *number = PyLong_FromLongLong(tried + 1);
    PyObject *fields[] = {all.resident, all.operation, number, count == 3 ? args[2] : Py_False};
    PyObject *attempt = number == NULL ? NULL : PyObject_Vectorcall(Attempt, fields, 4, NULL);
    int failed = attempt == NULL || PyDict_SetItem(all.attempts, all.location, attempt) < 0;
    if (!failed && (now_running >= most || get(all.spec, spec_concurrency) != Py_None)) {
        failed = carried_out(PyObject_CallMethodOneArg(self, name_admit, attempt)) < 0;
    }
    else if (!failed) {
        failed = admit(self, attempt) < 0;
    }
    Py_XDECREF(number);
    Py_XDECREF(attempt);
    let_go(&all);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether a resident and its turn are what Python would find them to be. */
static int
is_plain_pair(PyObject *resident, PyObject *turn)
{
    PyObject *inbox = is_just(resident, Resident) ? exact(resident, resident_inbox, Inbox) : NULL;
    PyObject *entries = is_a(turn, Turn) ? get(turn, turn_entries) : NULL;
    long long unread_items, expected;
    return inbox != NULL && is_number(get(inbox, inbox_unread), &unread_items)
           && exact(resident, resident_is_current, BOOL) != NULL && get(resident, resident_following) != NULL
           && (is_just(entries, LIST) || is_just(entries, TUPLE)) && is_number(get(turn, turn_expected_seq), &expected);
}

/* Whether the turn of a resident is stored and all that follows from it is to start one step. */
static inline int
only_starts(PyObject *resident, PyObject *result)
{
    long long unread_items = 1;
    is_number(get(get(resident, resident_inbox), inbox_unread), &unread_items);
    return result == plain_result && get(resident, resident_is_current) == Py_True
           && get(resident, resident_following) != Py_None && unread_items == 0;
}

static int
start_following(PyObject *self, PyObject *resident, PyObject *turn)
{
    PyObject *following = Py_NewRef(get(resident, resident_following));
    long long expected = 0;
    is_number(get(turn, turn_expected_seq), &expected);
    PyObject *next = PyLong_FromLongLong(expected + PySequence_Fast_GET_SIZE(get(turn, turn_entries)));
    put_new(resident, resident_following, Py_None);
    put_new(resident, resident_in_flight, Py_None);
    int failed = put_made(resident, resident_next_seq, next);
    if (!failed) {
        PyObject *asked[] = {self, resident, following, Py_True};
        failed = carried_out(PyObject_VectorcallMethod(name_start, asked, 4, NULL));
    }
    Py_DECREF(following);
    return failed;
}

/* The definition goes on with what is left of three tuples; what that returns is added to `left`. */
static int
start_rest(PyObject *self, PyObject *const *all, Py_ssize_t first, PyObject *left)
{
    PyObject *rests[] = {rest_of(all[0], first), rest_of(all[1], first), rest_of(all[2], first)}, *others = NULL;
    if (rests[0] != NULL && rests[1] != NULL && rests[2] != NULL) {
        others = call_python(&STEPS_METHODS[START_ALL], self, rests, 3, NULL);
    }
    int failed = others == NULL || PyList_SetSlice(left, PyList_GET_SIZE(left), PyList_GET_SIZE(left), others) < 0;
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(rests[i]);
    }
    Py_XDECREF(others);
    return failed ? -1 : 0;
}

static int
start_each(PyObject *self, PyObject *const *all, PyObject *left)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all[0]); i++) {
        PyObject *resident = PyTuple_GET_ITEM(all[0], i), *turn = PyTuple_GET_ITEM(all[1], i);
        PyObject *result = PyTuple_GET_ITEM(all[2], i);
        if (!is_plain_pair(resident, turn)) {
            return start_rest(self, all, i, left);
        }
        if (only_starts(resident, result)) {
            if (start_following(self, resident, turn) < 0) {
                return -1;
            }
            continue;
        }
        PyObject *rest = PyTuple_Pack(3, resident, turn, result);
        int failed = rest == NULL || PyList_Append(left, rest) < 0;
        Py_XDECREF(rest);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
steps_start_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t sizes[3] = {-1, -2, -3};
    for (int i = 0; has_just(3, count, names) && i < 3; i++) {
        if (is_just(args[i], LIST) || is_just(args[i], TUPLE)) {
            sizes[i] = PySequence_Fast_GET_SIZE(args[i]);
        }
    }
    if (sizes[0] != sizes[1] || sizes[0] != sizes[2]) {
        return call_python(&STEPS_METHODS[START_ALL], self, args, count, names);
    }
    /* Copies: what is started may change the lists. */
    PyObject *all[] = {PySequence_Tuple(args[0]), PySequence_Tuple(args[1]), PySequence_Tuple(args[2])};
    PyObject *left = PyList_New(0);
    int failed = left == NULL || all[0] == NULL || all[1] == NULL || all[2] == NULL;
    if (!failed && (PyTuple_GET_SIZE(all[0]) != PyTuple_GET_SIZE(all[1])
                    || PyTuple_GET_SIZE(all[0]) != PyTuple_GET_SIZE(all[2]))) {
        PyErr_SetString(PyExc_ValueError, "as many turns as residents, and as many results");
        failed = 1;
    }
    failed = failed || start_each(self, all, left) < 0;
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(all[i]);
    }
    if (failed) {
        Py_CLEAR(left);
    }
    return left;
}

/* `coroutine.send(None)`: what it yields or returns, and which of the two. */
static PySendResult
send_nothing(PyObject *coroutine, PyObject **result)
{
    if (PyCoro_CheckExact(coroutine) || PyGen_CheckExact(coroutine)) {
        return PyIter_Send(coroutine, Py_None, result);
    }
    *result = PyObject_CallMethodOneArg(coroutine, name_send, Py_None);
    if (*result != NULL || !PyErr_ExceptionMatches(PyExc_StopIteration)) {
        return *result == NULL ? PYGEN_ERROR : PYGEN_NEXT;
    }
    PyObject *error = caught();
    *result = PyObject_GetAttr(error, name_value);
    Py_DECREF(error);
    return *result == NULL ? PYGEN_ERROR : PYGEN_RETURN;
}

/* Run a coroutine until it waits or ends, in a context of its own; takes over the reference to it. */
static PyObject *
begin(PyObject *coroutine, PyObject *attempt)
{
    PyObject *context = PyContext_CopyCurrent(), *result = NULL;
    if (context == NULL || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        Py_DECREF(coroutine);
        return NULL;
    }
    PySendResult sent = PYGEN_ERROR;
    PyObject *token = PyContextVar_Set(step_context, attempt);
    if (token != NULL) {
        Py_DECREF(token);
        sent = send_nothing(coroutine, &result);
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

static PyObject *
steps_begin(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *operation = NULL, *spec = NULL, *coroutine = NULL;
    if (has_just(1, count, names) && is_just(self, Runner) && is_just(args[0], Attempt)) {
        operation = exact(args[0], attempt_operation, StepOperation);
        spec = operation == NULL ? NULL : exact(operation, step_spec, StepSpec);
    }
    PyObject *given = spec == NULL ? NULL : get(operation, step_args), *function = NULL;
    if (given != NULL && (given == Py_None || is_just(given, TUPLE)) && exact(spec, spec_is_bare, BOOL) != NULL
        && get(self, runner_stand_in) != NULL) {
        function = get(spec, spec_function);
    }
    if (function == NULL) {
        return call_python(&STEPS_METHODS[BEGIN], self, args, count, names);
    }
    if (given != Py_None && get(spec, spec_is_bare) == Py_True && get(self, runner_stand_in) == Py_None) {
        Py_INCREF(function);
        Py_INCREF(given);
        coroutine = PyObject_CallObject(function, given);
        Py_DECREF(given);
        Py_DECREF(function);
    }
    else {
        coroutine = PyObject_CallMethodOneArg(self, name_limited, args[0]);
    }
    return coroutine == NULL ? NULL : begin(coroutine, args[0]);
}

/* What is stored of a value; NULL, with an exception, if that cannot be said. */
static PyObject *
encoded_result(PyObject *spec, PyObject *codec, PyObject *value, int is_scalar)
{
    char buffer[BUFFER_SIZE], *end = is_scalar ? add_scalar(buffer, value) : NULL;
    if (end != NULL) {
        return PyBytes_FromStringAndSize(buffer, end - buffer);
    }
    PyObject *what = Py_NewRef(get(spec, spec_what));
    PyObject *encoded = PyObject_CallMethodObjArgs(codec, name_encode, value, what, NULL);
    Py_DECREF(what);
    return encoded;
}

/* The body of its record; takes over the reference to the encoded value. */
static PyObject *
done_body(PyObject *data, PyObject *site, PyObject *number, PyObject *encoded, long long most)
{
    PyObject *value = PyObject_CallOneArg(Raw, encoded), *body = NULL;
    PyObject *args = PyBytes_GET_SIZE(data) <= most ? PyObject_CallOneArg(Raw, data) : Py_NewRef(absent);
    PyObject *digest = PyLong_FromUnsignedLong(crc32(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0));
    if (value != NULL && args != NULL && digest != NULL) {
        PyObject *fields[] = {value, number, args, digest, site};
        body = PyObject_Vectorcall(StepDone, fields, 5, NULL);
    }
    Py_DECREF(encoded);
    Py_XDECREF(value);
    Py_XDECREF(args);
    Py_XDECREF(digest);
    return body;
}

/* What is recorded of a value that an attempt has returned, each with a reference of its own. */
typedef struct {
    PyObject *spec, *codec, *data, *site, *number;
} Returned;

static int
find_what_returned(PyObject *attempt, Returned *all)
{
    PyObject *operation, *spec, *codec, *data, *site, *number;
    if (!is_just(attempt, Attempt) || (operation = exact(attempt, attempt_operation, StepOperation)) == NULL
        || (spec = exact(operation, step_spec, StepSpec)) == NULL || get(spec, spec_what) == NULL
        || (codec = exact(spec, spec_result, ValueCodec)) == NULL
        || (data = exact(operation, step_data, BYTES)) == NULL || (site = get(operation, step_site)) == NULL
        || (number = get(attempt, attempt_number)) == NULL) {
        return 0;
    }
    *all = (Returned){Py_NewRef(spec), Py_NewRef(codec), Py_NewRef(data), Py_NewRef(site), Py_NewRef(number)};
    return 1;
}

static PyObject *
steps_returned(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Returned all;
    long long most = limit(limits, name_recorded_arguments_bytes_max);
    if (most < 0 || !has_just(2, count, names) || !find_what_returned(args[0], &all)) {
        PyErr_Clear();
        return call_python(&STEPS_METHODS[RETURNED], self, args, count, names);
    }
    PyObject *value = args[1], *noted = NULL, *body = NULL;
    int is_scalar = is_scalar_of(get(all.codec, codec_scalars), value);
    PyObject *encoded = encoded_result(all.spec, all.codec, value, is_scalar);
    if (encoded != NULL) {
        body = done_body(all.data, all.site, all.number, encoded, most);
    }
    if (body != NULL) {
        noted = PyObject_CallMethodObjArgs(self, name_note, args[0], body, is_scalar ? value : unread, NULL);
    }
    else {
        PyObject *error = caught();
        noted = PyObject_CallMethodObjArgs(self, name_unstorable, args[0], error, NULL);
        Py_XDECREF(error);
    }
    if (noted != NULL) {
        Py_SETREF(noted, Py_NewRef(Py_None));
    }
    Py_XDECREF(body);
    Py_DECREF(all.spec);
    Py_DECREF(all.codec);
    Py_DECREF(all.data);
    Py_DECREF(all.site);
    Py_DECREF(all.number);
    return noted;
}

/* An outcome of an attempt that is still wanted. */
static PyObject *
note(PyObject *self, Tried *all, PyObject *body, PyObject *known)
{
    PyObject *clock = Py_NewRef(get(self, runner_clock)), *finished = Py_NewRef(get(self, runner_finished));
    PyObject *outcomes = Py_NewRef(get(all->resident, resident_outcomes)), *outcome = NULL, *result = NULL;
    if (PyDict_DelItem(all->attempts, all->location) == 0) {
        PyObject *now = PyObject_CallMethodNoArgs(clock, name_now);
        PyObject *fields[] = {all->operation, body, now, known};
        outcome = now == NULL ? NULL : PyObject_Vectorcall(Outcome, fields, 4, NULL);
        Py_XDECREF(now);
    }
    if (outcome != NULL && PyList_Append(outcomes, outcome) == 0) {
        result = PyObject_CallOneArg(finished, all->resident);
    }
    Py_XDECREF(outcome);
    Py_DECREF(outcomes);
    Py_DECREF(finished);
    Py_DECREF(clock);
    if (result != NULL) {
        Py_SETREF(result, Py_NewRef(Py_None));
    }
    return result;
}

static PyObject *
steps_note(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Tried all;
    int is_usual = (has_just(2, count, names) || has_just(3, count, names)) && is_just(self, Runner)
                   && get(self, runner_clock) != NULL && get(self, runner_finished) != NULL
                   && find_all_of(args[0], &all);
    if (is_usual
        && (get(args[0], attempt_unwanted) != Py_False || exact(all.resident, resident_outcomes, LIST) == NULL
            || PyDict_GetItemWithError(all.attempts, all.location) != args[0])) {
        let_go(&all);
        is_usual = 0;
    }
    if (!is_usual) {
        return PyErr_Occurred() ? NULL : call_python(&STEPS_METHODS[NOTE], self, args, count, names);
    }
    PyObject *noted = note(self, &all, args[1], count == 3 ? args[2] : unread);
    let_go(&all);
    return noted;
}

/* Whether there are others that wait for an attempt to be over; 1 also if that cannot be said here. */
static inline int
others_wait(PyObject *self)
{
    PyObject *waiting = exact(self, runner_waiting, Queue);
    return waiting == NULL || PyObject_Size(waiting) != 0;
}

/* An attempt is over that came to its end without waiting. `all` is what it has to do with. */
static int
end_attempt(PyObject *self, PyObject *attempt, Tried *all, PyObject *value)
{
    long long now_running;
    int failed;
    if (others_wait(self) || get(all->spec, spec_concurrency) != Py_None || get(attempt, attempt_timer) != Py_None
        || get(attempt, attempt_has_left) != Py_False || !is_number(get(self, runner_running), &now_running)) {
        failed = carried_out(PyObject_CallMethodOneArg(self, name_leave, attempt));
    }
    else {
        put_new(attempt, attempt_has_left, Py_True);
        failed = put_made(self, runner_running, PyLong_FromLongLong(now_running - 1));
    }
    if (failed) {
        return -1;
    }
    PyObject *codec = exact(all->spec, spec_result, ValueCodec);
    if (get(attempt, attempt_alone) != Py_True || codec == NULL || !is_scalar_of(get(codec, codec_scalars), value)) {
        return carried_out(PyObject_CallMethodObjArgs(self, name_returned, attempt, value, NULL));
    }
    PyObject *ended = attribute(self, runner_ended, name_ended);
    PyObject *pair = ended == NULL ? NULL : PyTuple_Pack(2, attempt, value);
    failed = pair == NULL || carried_out(PyObject_CallMethodOneArg(ended, name_append, pair)) < 0;
    Py_XDECREF(pair);
    Py_XDECREF(ended);
    return failed ? -1 : 0;
}

/* One attempt of those that are queued. 1: it has come to its end; 0: it is not wanted any more; 2: it waits. */
static int
serve_one(PyObject *self, PyObject *attempt, Tried *all, PyObject **waits)
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
    if (is_just(value, Waits)) {
        *waits = value;
        return 2;
    }
    int failed = end_attempt(self, attempt, all, value);
    Py_DECREF(value);
    return failed ? -1 : 1;
}

/* Whether all is there that is looked at when an attempt has come to its end. */
static int
can_be_served(PyObject *attempt, Tried *all)
{
    PyObject *codec = exact(all->spec, spec_result, ValueCodec), *scalars = codec == NULL ? NULL : get(codec, codec_scalars);
    return exact(attempt, attempt_unwanted, BOOL) != NULL && exact(attempt, attempt_alone, BOOL) != NULL
           && scalars != NULL && PyAnySet_CheckExact(scalars);
}

/* The definition goes on with an attempt that is not as usual, and with the queue. */
static PyObject *
serve_rest(PyObject *self, PyObject *queue, PyObject *attempt, long long served, long long most)
{
    PyObject *left = carried_out(PyObject_CallMethodOneArg(queue, name_appendleft, attempt)) < 0
                         ? NULL
                         : PyLong_FromLongLong(most - served);
    PyObject *rest = left == NULL ? NULL : call_python(&STEPS_METHODS[SERVE_SOME], self, &left, 1, NULL), *result = NULL;
    Py_XDECREF(left);
    if (rest != NULL && (!is_just(rest, TUPLE) || PyTuple_GET_SIZE(rest) != 3)) {
        return rest;
    }
    PyObject *before = rest == NULL ? NULL : PyLong_FromLongLong(served);
    PyObject *sum = before == NULL ? NULL : PyNumber_Add(before, PyTuple_GET_ITEM(rest, 0));
    if (sum != NULL) {
        result = PyTuple_Pack(3, sum, PyTuple_GET_ITEM(rest, 1), PyTuple_GET_ITEM(rest, 2));
    }
    Py_XDECREF(before);
    Py_XDECREF(sum);
    Py_XDECREF(rest);
    return result;
}

static PyObject *
steps_serve_some(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *queue = is_just(self, Runner) ? exact(self, runner_queue, Queue) : NULL;
    long long most, served = 0;
    if (!has_just(1, count, names) || queue == NULL || !is_number(args[0], &most)) {
        return call_python(&STEPS_METHODS[SERVE_SOME], self, args, count, names);
    }
    Py_INCREF(queue);
    PyObject *attempt = NULL, *waits = NULL, *result = NULL;
    int outcome;
    do {
        Tried all;
        Py_XSETREF(attempt, PyObject_CallMethodNoArgs(queue, name_popleft));
        if (attempt == NULL) {
            break;
        }
        if (!find_all_of(attempt, &all)) {
            result = serve_rest(self, queue, attempt, served, most);
            break;
        }
        outcome = can_be_served(attempt, &all) ? serve_one(self, attempt, &all, &waits) : 3;
        let_go(&all);
        if (outcome == 3) {
            result = serve_rest(self, queue, attempt, served, most);
            break;
        }
        served += outcome == 1;
        if (outcome >= 0 && (waits != NULL || served == most || PyObject_Size(queue) <= 0)) {
            result = Py_BuildValue("LOO", served, attempt, waits == NULL ? Py_None : waits);
            break;
        }
    } while (outcome >= 0);
    Py_DECREF(queue);
    Py_XDECREF(attempt);
    Py_XDECREF(waits);
    return result;
}

static Accelerated STEPS_METHODS[STEPS_SIZE + 1] = {
    ACCELERATED("start", steps_start),
    ACCELERATED("start_all", steps_start_all),
    ACCELERATED("_begin", steps_begin),
    ACCELERATED("_serve_some", steps_serve_some),
    ACCELERATED("returned", steps_returned),
    ACCELERATED("_note", steps_note),
    END_OF_METHODS,
};

/* -- turns ------------------------------------------------------------------------------------------------------- */

static int
add_entry(PyObject *entries, PyObject *row)
{
    PyObject *entry = row == NULL ? NULL : PyObject_CallOneArg(Entry, row);
    int failed = entry == NULL || PyList_Append(entries, entry) < 0;
    Py_XDECREF(entry);
    return failed ? -1 : 0;
}

/* The number of operations that a run waits for; -1, without an exception, if that cannot be said here. */
static Py_ssize_t
waits_for(PyObject *run)
{
    PyObject *pending = exact(run, run_pending, Pending);
    PyObject *operations = pending == NULL ? NULL : exact(pending, pending_operations, DICT);
    return operations == NULL ? -1 : PyDict_GET_SIZE(operations);
}

/* The time of a run in microseconds, borrowed; NULL, without an exception, if there is none. */
static PyObject *
now_of(PyObject *run)
{
    PyObject *loop = exact(run, run_loop, Loop);
    return loop == NULL ? NULL : exact(loop, loop_now, INT);
}

/* The later of two moments, which are ints; a new reference, or NULL with an exception. */
static PyObject *
later(PyObject *first, PyObject *second)
{
    int is_later = PyObject_RichCompareBool(first, second, Py_GE);
    return is_later < 0 ? NULL : Py_NewRef(is_later ? first : second);
}

static inline int
is_empty(PyObject *items)
{
    return (is_just(items, LIST) || is_just(items, TUPLE)) && PySequence_Fast_GET_SIZE(items) == 0;
}

/* Whether the result of an attempt is all there is to know for the next turn of its run. */
static int
is_all(PyObject *attempt, PyObject *value, Tried *all)
{
    PyObject *codec = exact(all->spec, spec_result, ValueCodec);
    PyObject *run = exact(all->resident, resident_run, Run), *inbox = exact(all->resident, resident_inbox, Inbox);
    long long unread_items, seq;
    return run != NULL && inbox != NULL && get(run, run_is_plain) == Py_True
           && get(all->operation, step_settled) == Py_False && waits_for(run) == 1
           && is_number(get(inbox, inbox_unread), &unread_items) && unread_items == 0
           && is_empty(exact(all->resident, resident_outcomes, LIST))
           && is_empty(exact(all->resident, resident_commands, LIST)) && is_empty(get(all->resident, resident_written))
           && now_of(run) != NULL && is_number(get(all->resident, resident_next_seq), &seq)
           && get(attempt, attempt_number) != NULL && get(all->spec, spec_what) != NULL && codec != NULL
           && is_scalar_of(get(codec, codec_scalars), value)
           && PyDict_GetItemWithError(all->attempts, all->location) == attempt;
}

/* A turn of a resident with its first nine fields. */
static PyObject *
make_turn(PyObject *kind, PyObject *resident, PyObject *seq, PyObject *entries, PyObject *status, PyObject *at,
          PyObject *frontier)
{
    PyObject *key = get(resident, resident_key), *epoch = get(resident, resident_epoch);
    if (key == NULL || epoch == NULL) {
        PyErr_SetString(PyExc_AttributeError, "the resident of a turn has no key or no epoch");
        return NULL;
    }
    Py_INCREF(key);
    Py_INCREF(epoch);
    PyObject *fields[] = {key, epoch, one, seq, entries, status, Py_None, at, frontier};
    PyObject *turn = PyObject_Vectorcall(kind, fields, 9, NULL);
    Py_DECREF(key);
    Py_DECREF(epoch);
    return turn;
}

/* What is to be stored when the run waits for one step and for nothing else. */
static PyObject *
going_on(PyObject *resident, PyObject *step, PyObject *seq, PyObject *at, PyObject *entries)
{
    PyObject *digest = Py_NewRef(get(step, step_own_digest)), *asked[] = {seq, step};
    put_new(resident, resident_following, step);
    put_new(resident, resident_saved_count, one);
    put(resident, resident_saved_digest, digest);
    put_new(resident, resident_saved_run_status, running);
    PyObject *frontier = PyObject_Vectorcall(encode_step_frontier, asked, 2, NULL);
    PyObject *turn = frontier == NULL ? NULL : make_turn(StepTurn, resident, seq, entries, running, at, frontier);
    Py_XDECREF(frontier);
    return turn;
}

/* Whether a record at this place is one that the journal is to be warned of; 1 also if that cannot be said here. */
static int
is_to_warn(PyObject *seq)
{
    long long number = 0, warned = limit(limits_of_turns, name_journal_records_warn);
    if (warned < 0) {
        PyErr_Clear();
    }
    return warned < 0 || !is_number(seq, &number) || number == warned;
}

/* The step that the code asked for, as a new reference, if it asked for that and for nothing else. */
static PyObject *
only_step(PyObject *run, PyObject *commands, PyObject *seq)
{
    if (get(run, run_is_plain) != Py_True || get(run, run_outcome) != Py_None || !is_just(commands, LIST)
        || PyList_GET_SIZE(commands) != 1 || waits_for(run) != 1 || is_to_warn(seq)) {
        return NULL;
    }
    PyObject *command = PyList_GET_ITEM(commands, 0);
    PyObject *step = is_just(command, RunStep) ? exact(command, command_operation, StepOperation) : NULL;
    return step == NULL || get(step, step_own_digest) == NULL ? NULL : Py_NewRef(step);
}

/* Whether the run has come to its end, and nobody but its caller is to hear of it. */
static int
only_ends(PyObject *resident, PyObject *run, PyObject *commands, PyObject *seq)
{
    PyObject *outcome = exact(run, run_outcome, Complete);
    return outcome != NULL && get(outcome, complete_value) != NULL && get(outcome, complete_abandoned) != NULL
           && get(run, run_is_plain) == Py_True && is_just(commands, LIST) && PyList_GET_SIZE(commands) == 0 && waits_for(run) == 0
           && get(resident, resident_parent) == Py_None && !is_to_warn(seq);
}

/* What is to be stored when the run has come to its end. */
static PyObject *
completing(PyObject *resident, PyObject *run, PyObject *seq, PyObject *at, PyObject *entries)
{
    PyObject *outcome = get(run, run_outcome), *last = NULL, *row = NULL, *turn = NULL;
    PyObject *value[] = {Py_NewRef(get(outcome, complete_value)), Py_NewRef(get(outcome, complete_abandoned))};
    PyObject *next = PyNumber_Add(seq, one), *body = next == NULL ? NULL : PyObject_Vectorcall(Completed, value, 2, NULL);
    PyObject *frontier = body == NULL ? NULL : PyObject_CallMethodNoArgs(run, name_frontier);
    if (frontier != NULL) {
        PyObject *fields[] = {next, at, empty, body};
        last = PyObject_Vectorcall(Record, fields, 4, NULL);
    }
    row = last == NULL ? NULL : PyObject_CallOneArg(to_row, last);
    if (row != NULL && add_entry(entries, row) == 0) {
        put_new(resident, resident_last, last);
        turn = make_turn(Turn, resident, seq, entries, completed, at, frontier);
    }
    Py_DECREF(value[0]);
    Py_DECREF(value[1]);
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
        PyObject *turn = going_on(resident, step, seq, at, entries);
        Py_DECREF(step);
        return turn;
    }
    if (only_ends(resident, run, commands, seq)) {
        return completing(resident, run, seq, at, entries);
    }
    return PyObject_CallMethodObjArgs(self, name_describe, resident, commands, seq, at, now, entries, NULL);
}

/* The turn of a result whose record is `row`. */
static PyObject *
turn_of(PyObject *self, Tried *all, PyObject *run, PyObject *row, PyObject *value, PyObject *seq, PyObject *at,
        PyObject *now)
{
    PyObject *entries = PyList_New(0), *commands = NULL, *turn = NULL;
    if (entries != NULL && add_entry(entries, row) == 0 && PyDict_DelItem(all->attempts, all->location) == 0) {
        commands = PyObject_CallMethodObjArgs(run, name_deliver_result, seq, at, all->operation, value, NULL);
    }
    if (commands != NULL) {
        turn = describe(self, all->resident, run, commands, seq, at, now, entries);
    }
    Py_XDECREF(entries);
    Py_XDECREF(commands);
    return turn;
}

static PyObject *
turns_take_result(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Tried all;
    int is_found = has_just(3, count, names) && is_just(args[2], INT) && find_all_of(args[0], &all);
    if (!is_found || !is_all(args[0], args[1], &all)) {
        if (is_found) {
            let_go(&all);
        }
        return PyErr_Occurred() ? NULL : call_python(&TURNS_METHODS[TAKE_RESULT], self, args, count, names);
    }
    PyObject *run = Py_NewRef(get(all.resident, resident_run)), *seq = Py_NewRef(get(all.resident, resident_next_seq));
    PyObject *number = Py_NewRef(get(args[0], attempt_number)), *at = later(args[2], now_of(run));
    PyObject *asked[] = {seq, at, all.operation, number, args[1]}, *turn = NULL;
    PyObject *row = at == NULL ? NULL : PyObject_Vectorcall(step_row, asked, 5, NULL);
    if (row == Py_None) {
        turn = call_python(&TURNS_METHODS[TAKE_RESULT], self, args, count, names);
    }
    else if (row != NULL) {
        turn = turn_of(self, &all, run, row, args[1], seq, at, args[2]);
    }
    Py_DECREF(run);
    Py_DECREF(seq);
    Py_DECREF(number);
    Py_XDECREF(at);
    Py_XDECREF(row);
    let_go(&all);
    return turn;
}

/* Make a turn of one result. 1: it has one; 0: it is not as simple as most. */
static int
take_one(PyObject *self, PyObject *pair, PyObject *now, PyObject *moved, PyObject *turns)
{
    PyObject *attempt = PyTuple_GET_ITEM(pair, 0), *resident = Py_NewRef(get(attempt, attempt_resident));
    PyObject *asked[] = {self, attempt, PyTuple_GET_ITEM(pair, 1), now};
    PyObject *turn = PyObject_VectorcallMethod(name_take_result, asked, 4, NULL);
    if (turn == NULL || turn == Py_None) {
        Py_DECREF(resident);
        Py_XDECREF(turn);
        return turn == NULL ? -1 : 0;
    }
    put_new(resident, resident_in_flight, turn);
    int failed = PyList_Append(moved, resident) < 0 || PyList_Append(turns, turn) < 0;
    Py_DECREF(resident);
    Py_DECREF(turn);
    return failed ? -1 : 1;
}

/* Whether a turn may be made of what an attempt has returned; if not, Python says why. */
static int
can_be_taken(PyObject *pair)
{
    if (!is_just(pair, TUPLE) || PyTuple_GET_SIZE(pair) != 2 || !is_just(PyTuple_GET_ITEM(pair, 0), Attempt)) {
        return 0;
    }
    PyObject *attempt = PyTuple_GET_ITEM(pair, 0), *resident = exact(attempt, attempt_resident, Resident);
    return resident != NULL && get(resident, resident_queued) == Py_False && get(attempt, attempt_unwanted) == Py_False
           && get(resident, resident_in_flight) == Py_None && get(resident, resident_is_current) == Py_True;
}

static PyObject *
turns_take_results(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *ended = count > 0 ? args[0] : NULL;
    if (!has_just(4, count, names) || !is_just(ended, Queue) || !is_just(args[2], LIST) || !is_just(args[3], LIST)) {
        return call_python(&TURNS_METHODS[TAKE_RESULTS], self, args, count, names);
    }
    int taken = 1;
    while (taken == 1 && PyObject_Size(ended) > 0) {
        PyObject *pair = PySequence_GetItem(ended, 0);
        if (pair != NULL && !can_be_taken(pair)) {
            Py_DECREF(pair);
            return call_python(&TURNS_METHODS[TAKE_RESULTS], self, args, count, names);
        }
        PyObject *moved = args[2], *turns = args[3];
        taken = pair == NULL ? -1 : take_one(self, pair, args[1], moved, turns);
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

/* Whether an outcome of a step has all that its record is made of. */
static int
is_usual_outcome(PyObject *outcome)
{
    PyObject *operation = is_just(outcome, Outcome) ? exact(outcome, outcome_operation, StepOperation) : NULL;
    return operation != NULL && get(outcome, outcome_body) != NULL && get(outcome, outcome_known) != NULL
           && get(operation, step_location) != NULL && exact(operation, step_settled, BOOL) != NULL;
}

static int
has_changed(void)
{
    PyErr_SetString(PyExc_AttributeError, "a step or its resident was changed while its outcome was recorded");
    return -1;
}

/* One outcome becomes a record and is delivered. */
static int
take_outcome(PyObject *resident, PyObject *run, PyObject *outcome, PyObject *seq, PyObject *at, PyObject *entries)
{
    if (!is_usual_outcome(outcome)) {
        return has_changed();
    }
    PyObject *location = Py_NewRef(get(get(outcome, outcome_operation), step_location));
    PyObject *body = Py_NewRef(get(outcome, outcome_body)), *known = Py_NewRef(get(outcome, outcome_known));
    PyObject *fields[] = {seq, at, location, body}, *asked = NULL;
    PyObject *record = PyObject_Vectorcall(Record, fields, 4, NULL);
    PyObject *row = record == NULL ? NULL : PyObject_CallOneArg(to_row, record);
    if (row != NULL && add_entry(entries, row) == 0) {
        asked = PyObject_CallMethodObjArgs(run, name_deliver, record, known, NULL);
    }
    Py_XDECREF(record);
    Py_XDECREF(row);
    Py_DECREF(location);
    Py_DECREF(body);
    Py_DECREF(known);
    if (asked == NULL) {
        return -1;
    }
    PyObject *commands = exact(resident, resident_commands, LIST);
    int failed;
    if (commands != NULL) {
        Py_INCREF(commands);
        failed = PyList_SetSlice(commands, PyList_GET_SIZE(commands), PyList_GET_SIZE(commands), asked);
        Py_DECREF(commands);
    }
    else {
        failed = has_changed();
    }
    Py_DECREF(asked);
    return failed;
}

/* What a turn takes outcomes from and puts records to, each with a reference of its own. */
typedef struct {
    PyObject *run, *outcomes, *timers, *at;
    long long seq, most;
} Taking;

static int
find_what_is_taken(PyObject *resident, PyObject *now, PyObject *entries, Taking *all)
{
    PyObject *run, *outcomes, *pending, *timers;
    long long seq, most = limit(limits_of_turns, name_turn_records_max);
    if (most < 0 || !is_just(resident, Resident) || !is_just(now, INT) || !is_just(entries, LIST)
        || (run = exact(resident, resident_run, Run)) == NULL || now_of(run) == NULL
        || (outcomes = exact(resident, resident_outcomes, LIST)) == NULL
        || (pending = exact(run, run_pending, Pending)) == NULL
        || (timers = exact(pending, pending_timers, DICT)) == NULL
        || !is_number(get(resident, resident_next_seq), &seq) || exact(resident, resident_commands, LIST) == NULL
        || get(run, run_outcome) == NULL) {
        PyErr_Clear();
        return 0;
    }
    PyObject *at = later(now, now_of(run));
    if (at == NULL) {
        return 0;
    }
    seq += PyList_GET_SIZE(entries);
    *all = (Taking){Py_NewRef(run), Py_NewRef(outcomes), Py_NewRef(timers), at, seq, most};
    return 1;
}

/* Deliver outcomes. 1: the rest is not as usual; `taken` says how many have been. */
static int
take_each(PyObject *self, PyObject *resident, PyObject *entries, Taking *all, Py_ssize_t *taken)
{
    int outcome_of_one = 0;
    while (outcome_of_one == 0 && *taken < PyList_GET_SIZE(all->outcomes)) {
        PyObject *outcome = PyList_GET_ITEM(all->outcomes, *taken);
        if (!is_usual_outcome(outcome)) {
            return 1;
        }
        ++*taken;
        if (get(get(outcome, outcome_operation), step_settled) == Py_True) {
            continue;
        }
        Py_INCREF(outcome);
        PyObject *number = PyLong_FromLongLong(all->seq++);
        int failed = number == NULL
                     || (!is_just(get(outcome, outcome_body), StepDone)
                         && carried_out(PyObject_CallMethodObjArgs(self, name_note_failure, resident, outcome, NULL)) < 0)
                     || take_outcome(resident, all->run, outcome, number, all->at, entries) < 0;
        Py_XDECREF(number);
        Py_DECREF(outcome);
        if (failed) {
            return -1;
        }
        outcome_of_one = PyDict_GET_SIZE(all->timers) || get(all->run, run_outcome) != Py_None
                         || PyList_GET_SIZE(entries) >= all->most;
    }
    return 0;
}

static PyObject *
turns_take_outcomes(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Taking all;
    if (!has_just(3, count, names) || !find_what_is_taken(args[0], args[1], args[2], &all)) {
        return PyErr_Occurred() ? NULL : call_python(&TURNS_METHODS[TAKE_OUTCOMES], self, args, count, names);
    }
    Py_ssize_t taken = 0;
    int outcome = take_each(self, args[0], args[2], &all, &taken);
    int failed = outcome < 0 || PyList_SetSlice(all.outcomes, 0, taken, NULL) < 0;
    Py_DECREF(all.run);
    Py_DECREF(all.outcomes);
    Py_DECREF(all.timers);
    Py_DECREF(all.at);
    if (failed) {
        return NULL;
    }
    return outcome == 1 ? call_python(&TURNS_METHODS[TAKE_OUTCOMES], self, args, count, names) : Py_NewRef(Py_None);
}

static Accelerated TURNS_METHODS[TURNS_SIZE + 1] = {
    ACCELERATED("take_results", turns_take_results),
    ACCELERATED("take_result", turns_take_result),
    ACCELERATED("_take_outcomes", turns_take_outcomes),
    END_OF_METHODS,
};

/* -- taking their places ----------------------------------------------------------------------------------------- */

static PyObject *
bind_steps(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (take(given, STEPS, STEPS_FIELDS) < 0 || replace_methods(Runner, STEPS_METHODS) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
bind_turns(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (take(given, TURNS, TURNS_FIELDS) < 0 || replace_methods(Builder, TURNS_METHODS) < 0) {
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
    PyObject *collections = PyImport_ImportModule("collections");
    Queue = collections == NULL ? NULL : PyObject_GetAttrString(collections, "deque");
    Py_XDECREF(collections);
    if (Queue == NULL) {
        return NULL;
    }
    fill_crc_table();
    one = PyLong_FromLong(1);
    name_begin = name("_begin");
    name_leave = name("_leave");
    name_popleft = name("popleft");
    name_appendleft = name("appendleft");
    name_raised = name("_raised");
    name_returned = name("returned");
    name_unstorable = name("_unstorable");
    name_take_result = name("take_result");
    name_append = name("append");
    name_start = name("start");
    name_admit = name("_admit");
    name_running = name("_running");
    name_send_for_server = name("_send_for_server");
    name_limited = name("_limited");
    name_send = name("send");
    name_value = name("value");
    name_ended = name("ended");
    name_encode = name("encode");
    name_note = name("_note");
    name_now = name("now");
    name_deliver = name("deliver");
    name_note_failure = name("_note_failure");
    name_deliver_result = name("deliver_result");
    name_describe = name("_describe");
    name_frontier = name("frontier");
    name_recorded_arguments_bytes_max = name("RECORDED_ARGUMENTS_BYTES_MAX");
    name_journal_records_warn = name("JOURNAL_RECORDS_WARN");
    name_turn_records_max = name("TURN_RECORDS_MAX");
    empty = PyUnicode_FromString("");
    return make_module(&MODULE);
}
