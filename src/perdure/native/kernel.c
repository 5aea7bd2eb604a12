/* The way of a step through the kernel: asking for it, and handing over what came of it.

   Each function here is the accelerated implementation of a Python function or method of the same name, which is the
   definition: it says what has to happen, and the comments why. The one here does the same for the usual case; before
   it has changed anything it calls the definition for everything unusual, so that wrong arguments, objects without
   their fields and odd subclasses raise what Python raises. `perdure/native/__init__.py` says when it takes the place
   of the definition.

   Over 600 lines, and still one thing: what a step passes in the kernel, where one function calls the next without
   going through Python, which is what they are for. */

#include "json.h"

#include <math.h>

#define SITES 1024

/* -- what the modules of Python have ---------------------------------------------------------------------------- */

static PyObject *Loop, *Branch, *Callback, *Task, *StepName, *Run, *StepOperation, *RunStep, *Complete;
static PyObject *Record, *Started, *StepDone, *Row, *Raw, *Step, *StepSpec;
static PyObject *Post, *Pending, *WorkflowSpec, *ValueCodec;
static PyObject *new_future, *current_task, *get_running_loop, *set_running_loop, *unread, *limits, *run_handle;
static PyObject *encode_json, *own_site, *search_site, *step_digest, *init_task;
static PyObject *polls_looked_for_after, *polls_max;

static Field loop_ready, loop_stopped, loop_running, loop_post, loop_now, loop_owner, loop_root, loop_overdue;
static Field post_loop, callback_call, callback_context, task_branch, branch_path, branch_single, branch_counts;
static Field run_loop, run_outcome, run_closed, run_operations, run_commands, run_pending, run_replaying, run_last_seq;
static Field run_loops, run_main, pending_operations, pending_digest, spec_name, spec_result, spec_what;
static Field step_location, step_asked_at, step_site, step_data, step_settled, step_future, step_own_digest, step_spec;
static Field record_seq, record_at, record_location, record_body, done_value, done_digest;
static Field loop_generators, loop_failed_tasks, task_context;
static Field loop_numbers, loop_tasks, loop_compact_at, loop_iterations, task_number, branch_scope, run_spec;
static Field run_given_up;
static Field workflow_result, codec_scalars, parts_of_step;

static PyObject *zero, *one, *compact_first, *no_arguments;

static PyObject *kind_step_done;
static PyObject *name_drain, *name_set_result, *name_done, *name_note, *name_decode, *name_see_what_ended, *name_start,
    *name_main, *name_result, *name_cancelled, *name_check_arguments, *name_call_exception_handler, *name_exception,
    *name_kind, *name_qualname, *name_name, *name_context, *name_loop, *name_post, *name_stopped, *name_overdue,
    *name_ready, *name_tasks, *name_commands, *name_own_main, *name_pending, *name_operations, *name_digest, *name_outcome,
    *name_future, *name_now, *name_complain_of_spinning, *name_turn_callbacks_max, *name_recorded_arguments_bytes_max,
    *name_value_bytes_max;
static PyObject *named_loop, *named_future_and_digest, *named_loop_name_context;

static const Known KERNEL[] = {
    {"RunLoop", &Loop, CLASS}, {"Branch", &Branch, CLASS}, {"StepName", &StepName, CLASS},
    {"Started", &Started, CLASS}, {"Complete", &Complete, CLASS}, {"Raw", &Raw, CLASS},
    {"RunCallback", &Callback, CLASS}, {"RunTask", &Task, CLASS}, {"Run", &Run, CLASS},
    {"StepOperation", &StepOperation, CLASS}, {"RunStep", &RunStep, CLASS}, {"Record", &Record, CLASS},
    {"StepDone", &StepDone, CLASS}, {"Row", &Row, CLASS}, {"StepSpec", &StepSpec, CLASS}, {"Post", &Post, CLASS},
    {"Pending", &Pending, CLASS}, {"WorkflowSpec", &WorkflowSpec, CLASS}, {"ValueCodec", &ValueCodec, CLASS},
    {"init_task", &init_task, ANY}, {"Future", &new_future, ANY}, {"current_task", &current_task, ANY},
    {"get_running_loop", &get_running_loop, ANY}, {"set_running_loop", &set_running_loop, ANY},
    {"UNREAD", &unread, ANY}, {"encode_json", &encode_json, ANY}, {"run_handle", &run_handle, ANY},
    {"POLLS_LOOKED_FOR_AFTER", &polls_looked_for_after, NUMBER}, {"POLLS_MAX", &polls_max, NUMBER},
    {"limits", &limits, NAMES}, {"step_digest", &step_digest, NUMBER}, {NULL, NULL, ANY},
};

static const Wanted KERNEL_FIELDS[] = {
    {"RunLoop", "_ready", &loop_ready}, {"RunLoop", "stopped", &loop_stopped}, {"RunLoop", "running", &loop_running},
    {"RunLoop", "post", &loop_post}, {"RunLoop", "now", &loop_now}, {"RunLoop", "owner", &loop_owner},
    {"RunLoop", "root", &loop_root}, {"RunLoop", "overdue", &loop_overdue}, {"Post", "loop", &post_loop},
    {"RunCallback", "call", &callback_call}, {"RunCallback", "context", &callback_context},
    {"RunTask", "branch", &task_branch}, {"Branch", "path", &branch_path}, {"Branch", "single", &branch_single},
    {"Branch", "counts", &branch_counts}, {"Run", "loop", &run_loop}, {"Run", "outcome", &run_outcome},
    {"Run", "closed", &run_closed}, {"Run", "_operations", &run_operations}, {"Run", "_commands", &run_commands},
    {"Run", "pending", &run_pending}, {"Run", "replaying", &run_replaying}, {"Run", "last_seq", &run_last_seq},
    {"Run", "loops", &run_loops}, {"Run", "_main", &run_main}, {"Pending", "operations", &pending_operations},
    {"Pending", "digest", &pending_digest}, {"StepSpec", "name", &spec_name}, {"StepSpec", "result", &spec_result},
    {"StepSpec", "what", &spec_what}, {"StepOperation", "location", &step_location},
    {"StepOperation", "asked_at", &step_asked_at}, {"StepOperation", "site", &step_site},
    {"StepOperation", "data", &step_data}, {"StepOperation", "settled", &step_settled},
    {"StepOperation", "future", &step_future}, {"StepOperation", "digest", &step_own_digest},
    {"StepOperation", "spec", &step_spec}, {"Record", "seq", &record_seq}, {"Record", "at", &record_at},
    {"Record", "location", &record_location}, {"Record", "body", &record_body}, {"StepDone", "value", &done_value},
    {"StepDone", "digest", &done_digest}, {"RunLoop", "_numbers", &loop_numbers}, {"RunLoop", "_tasks", &loop_tasks},
    {"RunLoop", "_compact_at", &loop_compact_at}, {"RunLoop", "iterations", &loop_iterations},
    {"RunTask", "_number", &task_number}, {"RunTask", "context", &task_context},
    {"RunLoop", "generators", &loop_generators}, {"Branch", "scope", &branch_scope}, {"Run", "spec", &run_spec},
    {"WorkflowSpec", "result", &workflow_result}, {"ValueCodec", "scalars", &codec_scalars},
    {"RunLoop", "failed_tasks", &loop_failed_tasks}, {"Run", "_given_up", &run_given_up}, {NULL, NULL, NULL},
};

static const Known STEP[] = {
    {"Step", &Step, CLASS}, {"own_site", &own_site, ANY}, {"search_site", &search_site, ANY}, {NULL, NULL, ANY},
};

static const Wanted STEP_FIELDS[] = {{"Step", "_parts", &parts_of_step}, {NULL, NULL, NULL}};

/* -- the loop ---------------------------------------------------------------------------------------------------- */

enum { CALL_SOON, RUN_READY, CREATE_TASK, LOOP_SIZE };
enum { INIT_TASK, HASH_TASK, TASK_SIZE };
enum { LOCATE, BRANCH_SIZE };
enum { FINISH, ASK_STEP, DELIVER_RESULT, DELIVER, RUN_SIZE };
enum { CALL_STEP, STEP_SIZE };

static Accelerated LOOP_METHODS[LOOP_SIZE + 1], TASK_METHODS[TASK_SIZE + 1], BRANCH_METHODS[BRANCH_SIZE + 1];
static Accelerated RUN_METHODS[RUN_SIZE + 1], STEP_METHODS[STEP_SIZE + 1];

static PyObject *
loop_call_soon(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *context = NULL;
    if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
        if (PyTuple_GET_SIZE(names) > 1 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "context")) {
            return call_python(&LOOP_METHODS[CALL_SOON], self, args, count, names);
        }
        context = args[count];
    }
    context = context == NULL || context == Py_None ? PyContext_CopyCurrent() : Py_NewRef(context);
    PyObject *call = context == NULL ? NULL : PyTuple_New(count);
    if (call == NULL) {
        Py_XDECREF(context);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(call, i, Py_NewRef(args[i]));
    }
    PyObject *fields[] = {call, context};
    PyObject *handle = PyObject_Vectorcall(Callback, fields, 2, NULL);
    Py_DECREF(call);
    Py_DECREF(context);
    if (handle != NULL && append_to(self, loop_ready, name_ready, handle) < 0) {
        Py_CLEAR(handle);
    }
    return handle;
}

/* `handle.context.run(*handle.call)`; code that has a handle may have put something else there. */
static int
run_callback(PyObject *handle)
{
    PyObject *call = NULL, *context = NULL, *result = NULL;
    if (is_just(handle, Callback)) {
        context = exact(handle, callback_context, (PyObject *)&PyContext_Type);
        call = exact(handle, callback_call, TUPLE);
    }
    if (context == NULL || call == NULL || PyTuple_GET_SIZE(call) == 0) {
        return carried_out(PyObject_CallOneArg(run_handle, handle));
    }
    Py_INCREF(context);
    Py_INCREF(call);
    if (PyContext_Enter(context) == 0) {
        result = PyObject_Vectorcall(
            PyTuple_GET_ITEM(call, 0), &PyTuple_GET_ITEM(call, 1), (size_t)PyTuple_GET_SIZE(call) - 1, NULL);
        if (PyContext_Exit(context) < 0) {
            Py_CLEAR(result);
        }
    }
    Py_DECREF(context);
    Py_DECREF(call);
    return carried_out(result);
}

/* A callback raised: the loop's exception handler hears of it. */
static int
report(PyObject *loop)
{
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_SystemExit)) {
        return -1;
    }
    PyObject *error = caught(), *about = PyDict_New(), *result = NULL;
    if (about != NULL && PyDict_SetItem(about, name_exception, error) == 0) {
        result = PyObject_CallMethodOneArg(loop, name_call_exception_handler, about);
    }
    Py_XDECREF(about);
    Py_XDECREF(error);
    return carried_out(result);
}

/* Run what is ready. 1: there are more callbacks than a turn may have. */
static int
run_all(PyObject *loop, PyObject *ready, long long most)
{
    Py_ssize_t look = PyLong_AsSsize_t(polls_looked_for_after), look_at = look, few = PyLong_AsSsize_t(polls_max);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ready); i++) { /* it grows meanwhile, or is cleared */
        if (i >= most) {
            return 1;
        }
        PyObject *handle = Py_NewRef(PyList_GET_ITEM(ready, i));
        int failed = run_callback(handle) < 0 && report(loop) < 0;
        Py_DECREF(handle);
        int stopped = failed ? -1 : is_true(loop, loop_stopped, name_stopped);
        if (stopped) {
            return stopped < 0 ? -1 : 0;
        }
        if (i + 1 == look_at) {
            look_at += look;
            if (PyList_GET_SIZE(ready) - i - 1 < few) {
                PyObject *done = PyObject_CallMethod(loop, "_run_polling", "On", ready, i + 1);
                Py_XDECREF(done);
                return done == NULL ? -1 : 0;
            }
        }
    }
    return 0;
}

/* `loop.post.loop = running` */
static int
announce(PyObject *loop, PyObject *running)
{
    PyObject *post = exact(loop, loop_post, Post);
    if (post != NULL) {
        put_new(post, post_loop, running);
        return 0;
    }
    post = attribute(loop, loop_post, name_post);
    int failed = post == NULL || PyObject_SetAttr(post, name_loop, running) < 0;
    Py_XDECREF(post);
    return failed ? -1 : 0;
}

/* What follows a turn, however it ended. */
static int
end_turn(PyObject *loop, PyObject *ready)
{
    if (PyList_SetSlice(ready, 0, PyList_GET_SIZE(ready), NULL) < 0) {
        return -1;
    }
    put_new(loop, loop_running, Py_False);
    PyObject *overdue = announce(loop, Py_None) < 0 ? NULL : attribute(loop, loop_overdue, name_overdue);
    int failed = overdue == NULL || (overdue != Py_None && carried_out(PyObject_CallNoArgs(overdue)) < 0);
    Py_XDECREF(overdue);
    return failed ? -1 : 0;
}

static PyObject *
loop_run_ready(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *running = PyObject_CallNoArgs(get_running_loop), *ready = exact(self, loop_ready, LIST), *result = NULL;
    if (running == NULL) {
        return NULL;
    }
    int is_other = running != self, is_of_run = is_just(running, Loop);
    Py_DECREF(running);
    long long most = limit(limits, name_turn_callbacks_max);
    if (!has_just(0, count, names) || !is_just(self, Loop) || ready == NULL || most < 0 || (is_other && !is_of_run)
        || exact(self, loop_post, Post) == NULL) {
        PyErr_Clear();
        return call_python(&LOOP_METHODS[RUN_READY], self, args, count, names);
    }
    if (is_other && carried_out(PyObject_CallOneArg(set_running_loop, self)) < 0) {
        return NULL;
    }
    Py_INCREF(ready);
    put_new(self, loop_running, Py_True);
    int outcome = announce(self, self) < 0 ? -1 : run_all(self, ready, most);
    if (outcome == 1) {
        result = PyObject_CallMethodNoArgs(self, name_complain_of_spinning);
    }
    else if (outcome == 0) {
        result = Py_NewRef(Py_None);
    }
    PyObject *error = result == NULL ? caught() : NULL;
    if (end_turn(self, ready) < 0) { /* what the turn ended with counts no longer */
        PyObject *raised = caught();
        if (error != NULL && raised != error) {
            PyException_SetContext(raised, Py_NewRef(error));
        }
        Py_XSETREF(error, raised);
        Py_CLEAR(result);
    }
    Py_DECREF(ready);
    if (error != NULL) {
        raise_again(error);
    }
    return result;
}

/* `make_loop`, whose `__init__` only fills in fields. */
static PyObject *
native_make_loop(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (!has_just(3, count, names) || Loop == NULL || !PyLong_CheckExact(args[1])) { /* or nothing is bound yet */
        return call_definition("make_loop", args, count, names);
    }
    PyObject *loop = ((PyTypeObject *)Loop)->tp_new((PyTypeObject *)Loop, no_arguments, NULL);
    PyObject *root = loop == NULL ? NULL : PyObject_CallNoArgs(Branch), *ready = PyList_New(0), *tasks = PyList_New(0);
    unsigned long long seed = PyLong_AsUnsignedLongLongMask(args[1]) & 0xFFFFFFFF;
    PyObject *numbers = PyLong_FromUnsignedLongLong(seed << 20);
    if (root == NULL || ready == NULL || tasks == NULL || numbers == NULL) {
        Py_XDECREF(loop);
        Py_XDECREF(root);
        Py_XDECREF(ready);
        Py_XDECREF(tasks);
        Py_XDECREF(numbers);
        return NULL;
    }
    put_new(loop, loop_owner, args[0]);
    put_new(loop, loop_post, args[2]);
    put(loop, loop_ready, ready);
    put(loop, loop_numbers, numbers);
    put_new(loop, loop_now, zero);
    put(loop, loop_root, root);
    put_new(loop, loop_running, Py_False);
    put_new(loop, loop_stopped, Py_False);
    put(loop, loop_tasks, tasks);
    put_new(loop, loop_compact_at, compact_first);
    put_new(loop, loop_iterations, zero);
    put_new(loop, loop_overdue, Py_None);
    put_new(loop, loop_generators, Py_None);
    put_new(loop, loop_failed_tasks, Py_None);
    return loop;
}

/* `RunTask.__init__`, outside of the iterations of durable loops. */
static PyObject *
task_init(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *path = NULL, *numbers = NULL;
    if (has_just(4, count, names) && is_just(self, Task) && get(self, task_branch) == NULL && is_just(args[1], Loop)
        && is_just(args[2], Branch) && get(args[2], branch_scope) == Py_None && get(args[1], loop_iterations) == zero) {
        path = exact(args[2], branch_path, TEXT);
        numbers = exact(args[1], loop_numbers, INT);
    }
    if (path == NULL || numbers == NULL) {
        return call_python(&TASK_METHODS[INIT_TASK], self, args, count, names);
    }
    PyObject *loop = args[1], *branch = args[2], *number = PyNumber_Add(numbers, one);
    if (number == NULL) {
        return NULL;
    }
    path = Py_NewRef(PyUnicode_GET_LENGTH(path) ? path : name_main);
    put_new(loop, loop_numbers, number);
    put(self, task_number, number);
    put_new(self, task_branch, branch);
    PyObject *context = args[3] == Py_None ? PyContext_CopyCurrent() : Py_NewRef(args[3]), *result = NULL;
    if (context != NULL) {
        put_new(self, task_context, context);
        PyObject *fields[] = {self, args[0], loop, path, context};
        result = PyObject_Vectorcall(init_task, fields, 2, named_loop_name_context);
        Py_DECREF(context);
    }
    Py_DECREF(path);
    return result;
}

static PyObject *
task_hash(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *number = get(self, task_number);
    if (!has_just(0, count, names) || number == NULL) {
        return call_python(&TASK_METHODS[HASH_TASK], self, args, count, names);
    }
    return Py_NewRef(number);
}

static Accelerated TASK_METHODS[TASK_SIZE + 1] = {ACCELERATED("__init__", task_init), ACCELERATED("__hash__", task_hash), END_OF_METHODS};

/* -- asking for a step ------------------------------------------------------------------------------------------- */

/* `name#count` */
static PyObject *
numbered(PyObject *name, long long count)
{
    Py_ssize_t size;
    const char *text = json_text(name, &size);
    if (text == NULL) {
        return PyUnicode_FromFormat("%U#%lld", name, count);
    }
    char buffer[BUFFER_SIZE], *end = add(buffer, text, size);
    *end++ = '#';
    end = add_number(end, count);
    PyObject *made = PyUnicode_New(end - buffer, 127);
    if (made != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(made), buffer, (size_t)(end - buffer));
    }
    return made;
}

/* `Branch.locate`; NULL, without an exception and having changed nothing, if anything is unusual. */
static PyObject *
locate(PyObject *branch, PyObject *name)
{
    PyObject *path = exact(branch, branch_path, TEXT), *single = exact(branch, branch_single, BOOL);
    PyObject *counts = get(branch, branch_counts);
    if (path == NULL || single == NULL || counts == NULL || !PyUnicode_CheckExact(name)) {
        return NULL;
    }
    if (single == Py_True) {
        Py_INCREF(path);
        put_new(branch, branch_single, Py_False);
        return path;
    }
    if (counts == Py_None) {
        counts = PyDict_New();
    }
    else if (PyDict_CheckExact(counts)) {
        Py_INCREF(counts);
    }
    else {
        return NULL;
    }
    PyObject *before = counts == NULL ? NULL : PyDict_GetItemWithError(counts, name), *last = NULL;
    long long count = 0;
    if (counts == NULL || (before == NULL && PyErr_Occurred()) || (before != NULL && !is_number(before, &count))) {
        Py_XDECREF(counts);
        return NULL;
    }
    path = Py_NewRef(path);
    PyObject *number = PyLong_FromLongLong(++count);
    if (number != NULL && PyDict_SetItem(counts, name, number) == 0) {
        last = count > 1 ? numbered(name, count) : Py_NewRef(name);
        put_new(branch, branch_counts, counts);
    }
    Py_XDECREF(number);
    Py_DECREF(counts);
    if (last != NULL && PyUnicode_GET_LENGTH(path)) {
        Py_SETREF(last, PyUnicode_FromFormat("%U/%U", path, last));
    }
    Py_DECREF(path);
    return last;
}

static PyObject *
branch_locate(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *location = has_just(1, count, names) && is_just(self, Branch) ? locate(self, args[0]) : NULL;
    if (location == NULL && !PyErr_Occurred()) {
        return call_python(&BRANCH_METHODS[LOCATE], self, args, count, names);
    }
    return location;
}

static Accelerated BRANCH_METHODS[BRANCH_SIZE + 1] = {ACCELERATED("locate", branch_locate), END_OF_METHODS};

/* Where the code that is running stands, as a new reference; NULL, perhaps without an exception, if that is unusual. */
static PyObject *
current_branch(PyObject *loop)
{
    PyObject *task = PyObject_CallOneArg(current_task, loop);
    if (task == NULL) {
        return NULL;
    }
    PyObject *branch = NULL;
    if (is_just(task, Task)) {
        branch = exact(task, task_branch, Branch);
    }
    else if (task == Py_None) { /* a task of another class: Python knows where that stands */
        branch = exact(loop, loop_root, Branch);
    }
    Py_XINCREF(branch);
    Py_DECREF(task);
    return branch;
}

static PyObject *
make_step(PyObject *loop, PyObject *location, PyObject *number, PyObject *site, PyObject *spec, PyObject *args,
          PyObject *data, PyObject *digest)
{
    PyObject *now = attribute(loop, loop_now, name_now), *future = NULL, *step = NULL;
    if (now != NULL) {
        future = PyObject_Vectorcall(new_future, &loop, 0, named_loop);
    }
    if (future != NULL) {
        PyObject *fields[] = {location, number, now, site, spec, args, data, future, digest};
        step = PyObject_Vectorcall(StepOperation, fields, 7, named_future_and_digest);
    }
    Py_XDECREF(now);
    Py_XDECREF(future);
    return step;
}

/* The step is pending from now on. */
static int
add_step(PyObject *run, PyObject *pending, PyObject *step, PyObject *location, PyObject *digest)
{
    if (get(run, run_replaying) != Py_True) {
        PyObject *command = PyObject_CallOneArg(RunStep, step);
        int failed = command == NULL || append_to(run, run_commands, name_commands, command) < 0;
        Py_XDECREF(command);
        if (failed) {
            return -1;
        }
    }
    PyObject *operations = attribute(pending, pending_operations, name_operations);
    int failed = operations == NULL || PyObject_SetItem(operations, location, step) < 0;
    Py_XDECREF(operations);
    return failed ? -1 : change(pending, pending_digest, name_digest, digest, PyNumber_Add);
}

static PyObject *
run_ask_step(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *loop = exact(self, run_loop, Loop), *pending = exact(self, run_pending, Pending), *branch = NULL;
    PyObject *location = NULL, *number = NULL, *digest = NULL, *step = NULL, *name = NULL;
    long long operations;
    if (has_just(4, count, names) && loop != NULL && pending != NULL && get(self, run_outcome) == Py_None
        && get(self, run_closed) == Py_False && is_just(args[0], StepSpec) && exact(self, run_replaying, BOOL) != NULL
        && is_number(get(self, run_operations), &operations) && get(loop, loop_now) != NULL
        && (name = exact(args[0], spec_name, TEXT)) != NULL) {
        Py_INCREF(loop);
        Py_INCREF(pending);
        Py_INCREF(name);
        branch = current_branch(loop);
        location = branch == NULL ? NULL : locate(branch, name);
        Py_DECREF(name);
        Py_XDECREF(branch);
        if (location == NULL) {
            Py_DECREF(loop);
            Py_DECREF(pending);
        }
    }
    if (location == NULL) {
        return PyErr_Occurred() ? NULL : call_python(&RUN_METHODS[ASK_STEP], self, args, count, names);
    }
    number = PyLong_FromLongLong(operations + 1);
    if (number != NULL) {
        Py_ssize_t size;
        put_new(self, run_operations, number);
        const char *text = PyUnicode_AsUTF8AndSize(location, &size);
        if (text != NULL) {
            digest = PyLong_FromUnsignedLong(crc32(text, size, (unsigned int)PyLong_AsUnsignedLongMask(step_digest)));
        }
    }
    if (digest != NULL) {
        step = make_step(loop, location, number, args[3], args[0], args[1], args[2], digest);
    }
    if (step != NULL && add_step(self, pending, step, location, digest) < 0) {
        Py_CLEAR(step);
    }
    Py_DECREF(loop);
    Py_DECREF(pending);
    Py_DECREF(location);
    Py_XDECREF(number);
    Py_XDECREF(digest);
    return step;
}

/* Where a task of this coroutine stands, if it is the coroutine of a step; NULL, perhaps without an exception, else. */
static PyObject *
location_of_step(PyObject *loop, PyObject *coroutine)
{
    PyObject *title = PyObject_GetAttr(coroutine, name_qualname), *parent = NULL, *location = NULL;
    int is_step = is_just(title, StepName);
    Py_XDECREF(title);
    title = is_step ? PyObject_GetAttr(coroutine, name_name) : NULL;
    parent = title == NULL ? NULL : current_branch(loop);
    if (parent != NULL && get(parent, branch_scope) == Py_None) {
        location = locate(parent, title);
    }
    Py_XDECREF(title);
    Py_XDECREF(parent);
    return location;
}

/* `RunLoop.create_task` for the coroutine of a step, the usual member of a gather. */
static PyObject *
loop_create_task(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *tasks = exact(self, loop_tasks, LIST), *location = NULL, *task = NULL;
    long long compact_at;
    if (has_just(1, count, names) && is_just(self, Loop) && get(self, loop_iterations) == zero && tasks != NULL
        && PyCoro_CheckExact(args[0]) && is_number(get(self, loop_compact_at), &compact_at)
        && PyList_GET_SIZE(tasks) + 1 < compact_at) {
        location = location_of_step(self, args[0]);
    }
    if (location == NULL) {
        return PyErr_Occurred() ? NULL : call_python(&LOOP_METHODS[CREATE_TASK], self, args, count, names);
    }
    PyObject *fields[] = {location, Py_True}, *branch = PyObject_Vectorcall(Branch, fields, 2, NULL);
    Py_DECREF(location);
    if (branch != NULL) {
        PyObject *made_from[] = {args[0], self, branch, Py_None};
        task = PyObject_Vectorcall(Task, made_from, 4, NULL);
        Py_DECREF(branch);
    }
    if (task != NULL && append_to(self, loop_tasks, name_tasks, task) < 0) {
        Py_CLEAR(task);
    }
    return task;
}

static Accelerated LOOP_METHODS[LOOP_SIZE + 1] = {
    ACCELERATED("call_soon", loop_call_soon),
    ACCELERATED("_run_ready", loop_run_ready),
    ACCELERATED("create_task", loop_create_task),
    END_OF_METHODS,
};

/* -- handing over what came of it -------------------------------------------------------------------------------- */

/* A step about to be settled and what belongs to it, each with a reference of its own. */
typedef struct {
    PyObject *loop, *pending, *operations, *location, *step;
} Settling;

static void
let_go(Settling *all)
{
    Py_XDECREF(all->loop);
    Py_XDECREF(all->pending);
    Py_XDECREF(all->operations);
    Py_XDECREF(all->location);
    Py_XDECREF(all->step);
}

/* Whether a result for this step can be handed over the usual way: the step is pending at this location, and nothing
   that is needed for it is missing. 0, perhaps with an exception, if not. */
static int
may_settle(PyObject *run, PyObject *step, PyObject *location, PyObject *seq, PyObject *at, Settling *all)
{
    PyObject *loop = exact(run, run_loop, Loop), *pending = exact(run, run_pending, Pending), *operations, *found;
    if (loop == NULL || pending == NULL || get(run, run_loops) == NULL || !PyLong_CheckExact(seq)
        || !PyLong_CheckExact(at) || location == NULL || !PyUnicode_CheckExact(location)
        || exact(loop, loop_now, INT) == NULL || exact(pending, pending_digest, INT) == NULL
        || (operations = exact(pending, pending_operations, DICT)) == NULL) {
        return 0;
    }
    Py_INCREF(operations);
    found = PyDict_GetItemWithError(operations, location);
    PyObject *own = is_just(found, StepOperation) ? exact(found, step_location, TEXT) : NULL;
    if (own == NULL || (step != NULL && found != step) || (own != location && PyUnicode_Compare(own, location) != 0)
        || get(found, step_settled) != Py_False || exact(found, step_own_digest, INT) == NULL) {
        Py_DECREF(operations);
        return 0;
    }
    *all = (Settling){Py_NewRef(loop), Py_NewRef(pending), operations, Py_NewRef(location), Py_NewRef(found)};
    return 1;
}

/* The time of the run is that of the last record, and never goes back. */
static int
move_on(PyObject *run, Settling *all, PyObject *seq, PyObject *at)
{
    put_new(run, run_last_seq, seq);
    PyObject *now = attribute(all->loop, loop_now, name_now);
    int later = now == NULL ? -1 : PyObject_RichCompareBool(at, now, Py_GT);
    Py_XDECREF(now);
    if (later > 0) {
        put_new(all->loop, loop_now, at);
    }
    PyObject *loops = get(run, run_loops);
    if (later < 0 || loops == NULL || loops == Py_None) {
        return later < 0 ? -1 : 0;
    }
    Py_INCREF(loops);
    PyObject *noted = PyObject_CallMethodObjArgs(loops, name_note, seq, all->location, NULL);
    Py_DECREF(loops);
    return carried_out(noted);
}

/* `Pending.remove` */
static int
remove_step(Settling *all)
{
    put_new(all->step, step_settled, Py_True);
    if (PyDict_DelItem(all->operations, all->location) < 0) {
        return -1;
    }
    PyObject *digest = attribute(all->step, step_own_digest, name_digest);
    int failed = digest == NULL || change(all->pending, pending_digest, name_digest, digest, PyNumber_Subtract) < 0;
    Py_XDECREF(digest);
    return failed ? -1 : 0;
}

/* Whether the run waits for anything; -1 with an exception. */
static int
waits(PyObject *run)
{
    PyObject *pending = exact(run, run_pending, Pending);
    PyObject *operations = pending == NULL ? NULL : exact(pending, pending_operations, DICT);
    if (operations != NULL) {
        return PyDict_GET_SIZE(operations) > 0;
    }
    pending = attribute(run, run_pending, name_pending);
    operations = pending == NULL ? NULL : PyObject_GetAttr(pending, name_operations);
    int answer = operations == NULL ? -1 : PyObject_IsTrue(operations);
    Py_XDECREF(pending);
    Py_XDECREF(operations);
    return answer;
}

/* Whether something came to an end, so that there is more to do than to wait; -1 with an exception. */
static int
may_be_over(PyObject *run)
{
    PyObject *outcome = get(run, run_outcome);
    if (outcome == NULL) {
        return carried_out(PyObject_GetAttr(run, name_outcome)) < 0 ? -1 : 1;
    }
    int is_waiting = outcome == Py_None ? waits(run) : 0;
    if (is_waiting <= 0) {
        return is_waiting < 0 ? -1 : 1;
    }
    PyObject *main = attribute(run, run_main, name_own_main);
    PyObject *done = main == NULL ? NULL : PyObject_CallMethodNoArgs(main, name_done);
    int is_done = done == NULL ? -1 : PyObject_IsTrue(done);
    Py_XDECREF(main);
    Py_XDECREF(done);
    return is_done;
}

static int
see_what_ended(PyObject *run)
{
    int over = may_be_over(run);
    return over > 0 ? carried_out(PyObject_CallMethodNoArgs(run, name_see_what_ended)) : over;
}

/* `run.loop.drain()` */
static int
drain(PyObject *run)
{
    PyObject *loop = attribute(run, run_loop, name_loop);
    int failed = loop == NULL || carried_out(PyObject_CallMethodNoArgs(loop, name_drain)) < 0;
    Py_XDECREF(loop);
    return failed ? -1 : 0;
}

/* Settle the future of a step that is no longer pending, and let the code run until it is idle. */
static int
go_on(PyObject *run, PyObject *step, PyObject *value)
{
    PyObject *future = attribute(step, step_future, name_future);
    if (future == NULL) {
        return -1;
    }
    put_new(step, step_future, Py_None);
    int failed = carried_out(PyObject_CallMethodOneArg(future, name_set_result, value)) < 0 || drain(run) < 0;
    Py_DECREF(future);
    return failed ? -1 : see_what_ended(run);
}

static PyObject *
take_commands(PyObject *run)
{
    PyObject *empty = PyList_New(0), *commands = empty == NULL ? NULL : attribute(run, run_commands, name_commands);
    if (commands == NULL) {
        Py_XDECREF(empty);
        return NULL;
    }
    put(run, run_commands, empty);
    return commands;
}

static PyObject *
run_deliver_result(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Settling all;
    if (!has_just(4, count, names) || !is_just(args[2], StepOperation)
        || !may_settle(self, args[2], get(args[2], step_location), args[0], args[1], &all)) {
        return PyErr_Occurred() ? NULL : call_python(&RUN_METHODS[DELIVER_RESULT], self, args, count, names);
    }
    PyObject *commands = NULL;
    if (move_on(self, &all, args[0], args[1]) == 0 && remove_step(&all) == 0 && go_on(self, all.step, args[3]) == 0) {
        commands = take_commands(self);
    }
    let_go(&all);
    return commands;
}

/* A record of a step whose arguments are not those of now. */
static int
check_arguments(PyObject *run, PyObject *step, PyObject *recorded)
{
    PyObject *data = exact(step, step_data, BYTES);
    long long number;
    if (get(run, run_replaying) == Py_False
        || (data != NULL && is_number(recorded, &number)
            && number == (long long)crc32(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0))) {
        return 0;
    }
    return carried_out(PyObject_CallMethodObjArgs(run, name_check_arguments, step, recorded, NULL));
}

/* The first record of a run. */
static PyObject *
deliver_started(PyObject *run, PyObject *record, PyObject *seq, PyObject *body)
{
    put_new(run, run_last_seq, seq);
    Py_INCREF(body);
    PyObject *done = PyObject_CallMethodObjArgs(run, name_start, record, body, NULL);
    Py_DECREF(body);
    if (carried_out(done) < 0 || drain(run) < 0 || see_what_ended(run) < 0) {
        return NULL;
    }
    return take_commands(run);
}

/* Whether a run is as new as one that is about to be started. */
static int
is_new(PyObject *run)
{
    PyObject *given_up = get(run, run_given_up);
    return get(run, run_loops) == Py_None && get(run, run_loop) == Py_None && get(run, run_outcome) == Py_None
           && given_up != NULL && PyDict_Check(given_up) && PyDict_GET_SIZE(given_up) == 0;
}

/* What a recorded result is for the code, as a new reference. */
static PyObject *
decoded(PyObject *step, PyObject *body)
{
    PyObject *spec = exact(step, step_spec, StepSpec), *value = NULL;
    PyObject *codec = spec == NULL ? NULL : get(spec, spec_result), *what = spec == NULL ? NULL : get(spec, spec_what);
    PyObject *data = get(body, done_value);
    if (codec == NULL || what == NULL || data == NULL) { /* something has changed it since it was looked at */
        PyErr_SetString(PyExc_AttributeError, "a pending step is no longer complete");
        return NULL;
    }
    Py_INCREF(codec);
    Py_INCREF(what);
    Py_INCREF(data);
    value = PyObject_CallMethodObjArgs(codec, name_decode, data, what, NULL);
    Py_DECREF(codec);
    Py_DECREF(what);
    Py_DECREF(data);
    return value;
}

/* Whether a step has what is needed to hand it a recorded result. */
static int
can_be_handed(PyObject *run, PyObject *step, PyObject *body)
{
    PyObject *spec = exact(step, step_spec, StepSpec);
    return spec != NULL && get(spec, spec_result) != NULL && get(spec, spec_what) != NULL
           && get(body, done_value) != NULL && get(body, done_digest) != NULL && exact(step, step_data, BYTES) != NULL
           && exact(run, run_replaying, BOOL) != NULL;
}

static PyObject *
run_deliver(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *known = count == 2 ? args[1] : unread, *body = NULL, *seq = NULL, *at = NULL;
    if ((has_just(1, count, names) || has_just(2, count, names)) && is_just(args[0], Record)) {
        body = get(args[0], record_body);
        seq = get(args[0], record_seq);
        at = get(args[0], record_at);
    }
    if (body == NULL || seq == NULL || at == NULL) {
        return call_python(&RUN_METHODS[DELIVER], self, args, count, names);
    }
    if (is_just(body, Started) && is_new(self)) {
        return deliver_started(self, args[0], seq, body);
    }
    Settling all;
    if (!is_just(body, StepDone) || !may_settle(self, NULL, get(args[0], record_location), seq, at, &all)) {
        return PyErr_Occurred() ? NULL : call_python(&RUN_METHODS[DELIVER], self, args, count, names);
    }
    if (!can_be_handed(self, all.step, body)) {
        let_go(&all);
        return call_python(&RUN_METHODS[DELIVER], self, args, count, names);
    }
    PyObject *commands = NULL, *value = NULL, *digest = Py_NewRef(get(body, done_digest));
    Py_INCREF(body);
    if (move_on(self, &all, seq, at) == 0 && remove_step(&all) == 0 && check_arguments(self, all.step, digest) == 0) {
        value = known == unread ? decoded(all.step, body) : Py_NewRef(known);
    }
    if (value != NULL && go_on(self, all.step, value) == 0) {
        commands = take_commands(self);
    }
    Py_DECREF(digest);
    Py_DECREF(body);
    Py_XDECREF(value);
    let_go(&all);
    return commands;
}

/* What a task has returned; NULL, without an exception, if it came to its end in another way. */
static PyObject *
returned_by(PyObject *task)
{
    PyObject *cancelled = PyObject_CallMethodNoArgs(task, name_cancelled);
    PyObject *error = cancelled == Py_False ? PyObject_CallMethodNoArgs(task, name_exception) : NULL;
    PyObject *value = error == Py_None ? PyObject_CallMethodNoArgs(task, name_result) : NULL;
    Py_XDECREF(cancelled);
    Py_XDECREF(error);
    PyErr_Clear(); /* the definition meets the same error */
    return value;
}

/* The codec of what a run returns, borrowed, if the run has left nothing behind; else NULL. */
static PyObject *
codec_of_end(PyObject *run)
{
    PyObject *spec = exact(run, run_spec, WorkflowSpec), *loop = exact(run, run_loop, Loop);
    PyObject *pending = exact(run, run_pending, Pending);
    PyObject *tasks = loop == NULL ? NULL : exact(loop, loop_tasks, LIST);
    PyObject *operations = pending == NULL ? NULL : exact(pending, pending_operations, DICT);
    if (spec == NULL || tasks == NULL || operations == NULL || PyDict_GET_SIZE(operations)
        || PyList_GET_SIZE(tasks) != 1 || get(loop, loop_generators) != Py_None
        || get(loop, loop_failed_tasks) != Py_None) {
        return NULL;
    }
    return exact(spec, workflow_result, ValueCodec);
}

/* `Run._finish` of code that has returned a scalar and left nothing behind. */
static PyObject *
run_finish(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *codec = codec_of_end(self), *value = NULL;
    if (has_just(1, count, names) && codec != NULL && is_just(args[0], Task)) {
        Py_INCREF(codec);
        value = returned_by(args[0]);
    }
    else {
        codec = NULL;
    }
    char buffer[BUFFER_SIZE], *end = NULL;
    if (value != NULL && is_scalar_of(get(codec, codec_scalars), value)) {
        end = add_scalar(buffer, value);
    }
    Py_XDECREF(value);
    Py_XDECREF(codec);
    if (end == NULL) {
        PyErr_Clear();
        return call_python(&RUN_METHODS[FINISH], self, args, count, names);
    }
    PyObject *data = PyBytes_FromStringAndSize(buffer, end - buffer);
    PyObject *raw = data == NULL ? NULL : PyObject_CallOneArg(Raw, data);
    PyObject *outcome = raw == NULL ? NULL : PyObject_CallOneArg(Complete, raw);
    Py_XDECREF(data);
    Py_XDECREF(raw);
    if (outcome == NULL) {
        return NULL;
    }
    put(self, run_outcome, outcome);
    Py_RETURN_NONE;
}

static Accelerated RUN_METHODS[RUN_SIZE + 1] = {
    ACCELERATED("_finish", run_finish),
    ACCELERATED("ask_step", run_ask_step),
    ACCELERATED("deliver_result", run_deliver_result),
    ACCELERATED("deliver", run_deliver),
    END_OF_METHODS,
};

/* -- what is stored of it ---------------------------------------------------------------------------------------- */

/* A `Row`; NULL, without an exception, if there is no checksum of what it is made from but Python's. Takes over the
   reference to `data`. */
static PyObject *
make_row(PyObject *seq, PyObject *at, PyObject *kind, PyObject *location, PyObject *data)
{
    Py_ssize_t kind_size, size;
    const char *kind_text = NULL, *text = NULL;
    PyObject *row = NULL, *check = NULL;
    if (PyLong_CheckExact(seq) && PyLong_CheckExact(at) && PyUnicode_CheckExact(kind) && PyBytes_CheckExact(data)
        && location != NULL && PyUnicode_CheckExact(location)) {
        kind_text = PyUnicode_AsUTF8AndSize(kind, &kind_size);
        text = PyUnicode_AsUTF8AndSize(location, &size);
    }
    if (kind_text != NULL && text != NULL) {
        unsigned long long start = PyLong_AsUnsignedLongLongMask(seq) ^ PyLong_AsUnsignedLongLongMask(at);
        unsigned int crc = crc32(kind_text, kind_size, (unsigned int)start);
        crc = crc32(text, size, crc32(" ", 1, crc));
        check = PyLong_FromUnsignedLong(crc32(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), crc));
        row = check == NULL ? NULL : ((PyTypeObject *)Row)->tp_alloc((PyTypeObject *)Row, 6);
    }
    else {
        PyErr_Clear(); /* a lone surrogate: Python says where */
    }
    if (row == NULL) {
        Py_XDECREF(check);
        Py_DECREF(data);
        return NULL;
    }
    PyTuple_SET_ITEM(row, 0, Py_NewRef(seq));
    PyTuple_SET_ITEM(row, 1, Py_NewRef(at));
    PyTuple_SET_ITEM(row, 2, Py_NewRef(kind));
    PyTuple_SET_ITEM(row, 3, Py_NewRef(location));
    PyTuple_SET_ITEM(row, 4, data);
    PyTuple_SET_ITEM(row, 5, check);
    return row;
}

static PyObject *
native_to_row(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *body = NULL, *seq = NULL, *at = NULL, *row = NULL;
    if (has_just(1, count, names) && is_just(args[0], Record)) { /* or nothing is bound yet */
        body = get(args[0], record_body);
        seq = get(args[0], record_seq);
        at = get(args[0], record_at);
    }
    if (body != NULL && seq != NULL && at != NULL) {
        int is_done = is_just(body, StepDone);
        Py_INCREF(seq);
        Py_INCREF(at);
        Py_INCREF(body);
        PyObject *data = PyObject_CallOneArg(encode_json, body);
        PyObject *kind = data == NULL ? NULL : is_done ? Py_NewRef(kind_step_done) : PyObject_GetAttr(body, name_kind);
        if (kind != NULL) {
            PyObject *location = get(args[0], record_location);
            Py_XINCREF(location);
            row = make_row(seq, at, kind, location, data);
            Py_XDECREF(location);
            Py_DECREF(kind);
        }
        else {
            Py_XDECREF(data);
        }
        Py_DECREF(seq);
        Py_DECREF(at);
        Py_DECREF(body);
    }
    return row != NULL || PyErr_Occurred() ? row : call_definition("to_row", args, count, names);
}

/* The JSON of a `StepDone`; NULL, without an exception, if only msgspec knows how to write it. */
static PyObject *
step_done_json(PyObject *step, long long number, PyObject *value)
{
    PyObject *args = exact(step, step_data, BYTES), *where = get(step, step_site);
    Py_ssize_t site_size, args_size = args == NULL ? PY_SSIZE_T_MAX : PyBytes_GET_SIZE(args);
    const char *site = where == NULL ? NULL : json_text(where, &site_size);
    if (site == NULL || args_size > TEXT_MAX || args_size > limit(limits, name_recorded_arguments_bytes_max)) {
        PyErr_Clear();
        return NULL;
    }
    char buffer[BUFFER_SIZE], *end = ADD(buffer, "{\"value\":");
    end = add_scalar(end, value);
    if (end == NULL) {
        return NULL;
    }
    if (number != 1) {
        end = add_number(ADD(end, ",\"attempt\":"), number);
    }
    end = add(ADD(end, ",\"args\":"), PyBytes_AS_STRING(args), args_size);
    unsigned int digest = crc32(PyBytes_AS_STRING(args), args_size, 0);
    if (digest) {
        end = add_number(ADD(end, ",\"digest\":"), digest);
    }
    if (site_size) {
        end = ADD(add(ADD(end, ",\"site\":\""), site, site_size), "\"");
    }
    *end++ = '}';
    return PyBytes_FromStringAndSize(buffer, end - buffer);
}

/* The row of a step's result; None if only Python knows how to make it. */
static PyObject *
native_step_row(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    long long number;
    if (count != 5 || !is_just(args[2], StepOperation)) {
        PyErr_SetString(PyExc_TypeError, "step_row() takes seq, at, step, number and value");
        return NULL;
    }
    PyObject *data = is_number(args[3], &number) ? step_done_json(args[2], number, args[4]) : NULL;
    PyObject *location = get(args[2], step_location);
    Py_XINCREF(location);
    PyObject *row = data == NULL ? NULL : make_row(args[0], args[1], kind_step_done, location, data);
    Py_XDECREF(location);
    return row != NULL || PyErr_Occurred() ? row : Py_NewRef(Py_None);
}

static PyObject *
native_encode_step_frontier(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *step = has_just(2, count, names) && is_just(args[1], StepOperation) ? args[1] : NULL;
    Py_ssize_t size, site_size;
    const char *location = NULL, *site = NULL;
    long long seq, digest, since;
    if (step != NULL && get(step, step_location) != NULL && get(step, step_site) != NULL
        && is_number(args[0], &seq) && is_number(get(step, step_own_digest), &digest)
        && is_number(get(step, step_asked_at), &since)) {
        location = json_text(get(step, step_location), &size);
        site = json_text(get(step, step_site), &site_size);
    }
    if (location == NULL || site == NULL) {
        return call_definition("encode_step_frontier", args, count, names);
    }
    char buffer[BUFFER_SIZE], *end = add_number(ADD(buffer, "{\"seq\":"), seq);
    end = add_number(ADD(end, ",\"count\":1,\"digest\":"), digest);
    end = ADD(add(ADD(end, ",\"operations\":[{\"kind\":\"step\",\"location\":\""), location, size), "\",\"since\":");
    end = add_number(end, since);
    if (site_size) {
        end = ADD(add(ADD(end, ",\"site\":\""), site, site_size), "\"");
    }
    end = ADD(end, "}]}");
    return PyBytes_FromStringAndSize(buffer, end - buffer);
}

/* -- calling a step in workflow code ----------------------------------------------------------------------------- */

/* Which line of the user's an instruction belongs to. A code that is kept here cannot give its address to another. */
static struct {
    PyObject *code, *label;
    int instruction;
} sites[SITES];

/* `caller_site` of the frame that is running: the call came from there without a frame of its own. */
static PyObject *
current_site(void)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (frame == NULL) {
        return PyUnicode_FromString("");
    }
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    int instruction = PyFrame_GetLasti((PyFrameObject *)frame);
    size_t place = (((size_t)code >> 5) ^ ((size_t)instruction * 31)) % SITES;
    if (sites[place].code == code && sites[place].instruction == instruction) {
        Py_DECREF(code);
        return Py_NewRef(sites[place].label);
    }
    Py_INCREF(frame);
    PyObject *label = PyObject_CallOneArg(own_site, frame);
    if (label != NULL && PyUnicode_CheckExact(label) && PyUnicode_GET_LENGTH(label)) {
        PyObject *old_code = sites[place].code, *old_label = sites[place].label;
        sites[place].code = Py_NewRef(code); /* all three, before anything that was there is let go */
        sites[place].label = Py_NewRef(label);
        sites[place].instruction = instruction;
        Py_XDECREF(old_code);
        Py_XDECREF(old_label);
    }
    else if (label != NULL) {
        Py_SETREF(label, PyObject_CallOneArg(search_site, frame));
    }
    Py_DECREF(frame);
    Py_DECREF(code);
    return label;
}

/* `ArgumentsCodec.encode_call` for arguments that msgspec stores as they are; NULL, perhaps without an exception. */
static PyObject *
encode_directly(PyObject *known, PyObject *const *args, Py_ssize_t count)
{
    PyObject *kinds = PyTuple_New(count);
    if (kinds == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        /* A float may be none that JSON has, and the hash of a class that is not built in may be the user's. */
        if (!PyUnicode_CheckExact(args[i]) && !PyLong_CheckExact(args[i]) && !PyBool_Check(args[i])
            && args[i] != Py_None) {
            Py_DECREF(kinds);
            return NULL;
        }
        PyTuple_SET_ITEM(kinds, i, Py_NewRef((PyObject *)Py_TYPE(args[i])));
    }
    PyObject *form = PyDict_GetItemWithError(known, kinds);
    Py_XINCREF(form);
    Py_DECREF(kinds);
    if (form == NULL || form == Py_None) {
        Py_XDECREF(form);
        return NULL;
    }
    PyObject *call = PyObject_Vectorcall(form, args, (size_t)count, NULL);
    PyObject *data = call == NULL ? NULL : PyObject_CallOneArg(encode_json, call);
    Py_DECREF(form);
    Py_XDECREF(call);
    if (data != NULL && (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) > limit(limits, name_value_bytes_max))) {
        Py_CLEAR(data);
    }
    return data;
}

/* Call something with the arguments of a call as a tuple and a dictionary. */
static PyObject *
hand_on(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *positional = PyTuple_New(count), *named = PyDict_New(), *result = NULL;
    int failed = positional == NULL || named == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    }
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        failed = PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[count + i]) < 0;
    }
    if (!failed) {
        result = PyObject_CallFunctionObjArgs(callable, positional, named, NULL);
    }
    Py_XDECREF(positional);
    Py_XDECREF(named);
    return result;
}

/* The arguments of a call as they are stored and, in `seen`, as the step may see them. */
static PyObject *
encode_call(PyObject *parts, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **seen)
{
    PyObject *data = NULL;
    if (names == NULL || PyTuple_GET_SIZE(names) == 0) {
        data = encode_directly(PyTuple_GET_ITEM(parts, 3), args, count);
    }
    if (data != NULL) {
        *seen = PyTuple_New(count);
        for (Py_ssize_t i = 0; *seen != NULL && i < count; i++) {
            PyTuple_SET_ITEM(*seen, i, Py_NewRef(args[i]));
        }
        return data;
    }
    PyErr_Clear(); /* the other one meets the same error, if it is one */
    PyObject *encoded = hand_on(PyTuple_GET_ITEM(parts, 1), args, count, names);
    if (encoded != NULL && PyTuple_CheckExact(encoded) && PyTuple_GET_SIZE(encoded) == 2) {
        data = Py_NewRef(PyTuple_GET_ITEM(encoded, 0));
        *seen = Py_NewRef(PyTuple_GET_ITEM(encoded, 1));
    }
    else if (encoded != NULL) {
        PyErr_SetString(PyExc_TypeError, "the codec of a step's arguments gives the bytes and what the step may see");
    }
    Py_XDECREF(encoded);
    return data;
}

static PyObject *
step_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *loop = PyObject_CallNoArgs(get_running_loop), *run = NULL, *parts = NULL;
    if (loop == NULL) {
        return NULL;
    }
    if (is_just(loop, Loop) && is_just(self, Step)) {
        run = get(loop, loop_owner);
        parts = exact(self, parts_of_step, TUPLE);
    }
    int is_usual = is_a(run, Run) && parts != NULL && PyTuple_GET_SIZE(parts) == 4
                   && is_just(PyTuple_GET_ITEM(parts, 0), StepSpec) && is_just(PyTuple_GET_ITEM(parts, 3), DICT);
    if (!is_usual) { /* outside of a run, or called for the first time */
        Py_DECREF(loop);
        return call_python(&STEP_METHODS[CALL_STEP], self, args, count, names);
    }
    Py_INCREF(run);
    Py_INCREF(parts);
    Py_DECREF(loop);
    PyObject *seen = NULL, *data = encode_call(parts, args, count, names, &seen), *site = NULL, *asked = NULL;
    if (data != NULL && seen != NULL) {
        site = current_site();
    }
    if (site != NULL) {
        PyObject *all[] = {run, PyTuple_GET_ITEM(parts, 0), seen, data, site};
        asked = PyObject_Vectorcall(PyTuple_GET_ITEM(parts, 2), all, 5, NULL);
    }
    Py_XDECREF(data);
    Py_XDECREF(seen);
    Py_XDECREF(site);
    Py_DECREF(parts);
    Py_DECREF(run);
    return asked;
}

static Accelerated STEP_METHODS[STEP_SIZE + 1] = {ACCELERATED("__call__", step_call), END_OF_METHODS};

/* -- contexts, for `kernel.collector` ------------------------------------------------------------------------------ */

static PyObject *
enter_context(PyObject *Py_UNUSED(module), PyObject *context)
{
    return PyContext_Enter(context) < 0 ? NULL : Py_NewRef(Py_None); /* checks what it is given */
}

static PyObject *
exit_context(PyObject *Py_UNUSED(module), PyObject *context)
{
    return PyContext_Exit(context) < 0 ? NULL : Py_NewRef(Py_None);
}

/* -- taking their places ----------------------------------------------------------------------------------------- */

static PyObject *
bind_kernel(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (take(given, KERNEL, KERNEL_FIELDS) < 0 || replace_methods(Loop, LOOP_METHODS) < 0
        || replace_methods(Task, TASK_METHODS) < 0 || replace_methods(Branch, BRANCH_METHODS) < 0
        || replace_methods(Run, RUN_METHODS) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* -- `kernel.exact` ----------------------------------------------------------------------------------------------- */

static int same_data(PyObject *before, PyObject *after);

static int
same_dicts(PyObject *before, PyObject *after)
{
    PyObject *key, *item, *other_key, *other;
    Py_ssize_t place = 0, other_place = 0;
    if (PyDict_GET_SIZE(before) != PyDict_GET_SIZE(after)) {
        return 0;
    }
    while (PyDict_Next(before, &place, &key, &item)) {
        if (!PyDict_Next(after, &other_place, &other_key, &other)) {
            return 0;
        }
        PyObject *held[] = {Py_NewRef(key), Py_NewRef(item), Py_NewRef(other_key), Py_NewRef(other)};
        int same = same_data(held[0], held[2]);
        same = same > 0 ? same_data(held[1], held[3]) : same;
        for (int i = 0; i < 4; i++) {
            Py_DECREF(held[i]);
        }
        if (same <= 0) {
            return same;
        }
    }
    return 1;
}

/* Whether all that an instance of the class holds is its `__dict__`: no slots, no state in C. */
static int
holds_only_a_dict(PyTypeObject *class)
{
    Py_ssize_t size = PyBaseObject_Type.tp_basicsize;
    size += class->tp_weaklistoffset > 0 ? (Py_ssize_t)sizeof(PyObject *) : 0;
    size += class->tp_dictoffset > 0 ? (Py_ssize_t)sizeof(PyObject *) : 0;
    return class->tp_dictoffset != 0 && class->tp_basicsize <= size && class->tp_itemsize == 0
           && PyType_HasFeature(class, Py_TPFLAGS_HEAPTYPE);
}

static int
same_instances(PyObject *before, PyObject *after)
{
    PyObject *one = PyObject_GenericGetDict(before, NULL);
    PyObject *other = one == NULL ? NULL : PyObject_GenericGetDict(after, NULL);
    int same = -1;
    if (other != NULL) {
        same = PyDict_CheckExact(one) && PyDict_CheckExact(other) && PyDict_GET_SIZE(one) > 0;
        same = same ? same_dicts(one, other) : 0;
    }
    Py_XDECREF(one);
    Py_XDECREF(other);
    return same;
}

/* 1: the same; 0: not, or not known here; -1: an exception. Runs no code of a user: only built-in types are compared,
   and the dictionaries of instances. */
static int
same_data(PyObject *before, PyObject *after)
{
    PyTypeObject *kind = Py_TYPE(before);
    if (kind != Py_TYPE(after)) {
        return 0;
    }
    if (before == Py_None || kind == &PyBool_Type) {
        return before == after;
    }
    if (kind == &PyFloat_Type) {
        double one = PyFloat_AS_DOUBLE(before), other = PyFloat_AS_DOUBLE(after);
        return one == other && signbit(one) == signbit(other);
    }
    if (kind == &PyUnicode_Type || kind == &PyLong_Type || kind == &PyBytes_Type) {
        return before == after ? 1 : PyObject_RichCompareBool(before, after, Py_EQ);
    }
    int is_instance = kind != &PyDict_Type && kind != &PyList_Type && kind != &PyTuple_Type;
    if (is_instance && !holds_only_a_dict(kind)) {
        return 0;
    }
    if (Py_EnterRecursiveCall(" while two values are compared")) {
        return -1;
    }
    int same = 1;
    if (is_instance) {
        same = same_instances(before, after);
    }
    else if (kind == &PyDict_Type) {
        same = same_dicts(before, after);
    }
    else {
        Py_ssize_t count = PySequence_Fast_GET_SIZE(before);
        same = count == PySequence_Fast_GET_SIZE(after);
        for (Py_ssize_t i = 0; same > 0 && i < count; i++) {
            if (i >= PySequence_Fast_GET_SIZE(before) || i >= PySequence_Fast_GET_SIZE(after)) {
                same = 0; /* a list that was changed meanwhile, by a finalizer */
                break;
            }
            PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(before, i));
            PyObject *other = Py_NewRef(PySequence_Fast_GET_ITEM(after, i));
            same = same_data(item, other);
            Py_DECREF(item);
            Py_DECREF(other);
        }
    }
    Py_LeaveRecursiveCall();
    return same;
}

static PyObject *
native_same_data(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (!has_just(2, count, names)) {
        return call_definition("same_data", args, count, names);
    }
    int same = same_data(args[0], args[1]);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* Keep the Python function whose place an accelerated one is about to take. */
static PyObject *
keep_definition(PyObject *Py_UNUSED(module), PyObject *function)
{
    PyObject *name = PyObject_GetAttrString(function, "__qualname__");
    if (name == NULL || PyDict_SetItem(definitions, name, function) < 0) {
        Py_XDECREF(name);
        return NULL;
    }
    Py_DECREF(name);
    Py_RETURN_NONE;
}

static PyObject *
bind_step(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (take(given, STEP, STEP_FIELDS) < 0 || replace_methods(Step, STEP_METHODS) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef FUNCTIONS[] = {
    FUNCTION("to_row", native_to_row),
    {"step_row", (PyCFunction)(void (*)(void))native_step_row, METH_FASTCALL, NULL},
    FUNCTION("encode_step_frontier", native_encode_step_frontier),
    FUNCTION("make_loop", native_make_loop),
    FUNCTION("same_data", native_same_data),
    {"enter_context", enter_context, METH_O, NULL},
    {"exit_context", exit_context, METH_O, NULL},
    {"keep_definition", keep_definition, METH_O, NULL},
    {"bind_kernel", bind_kernel, METH_O, NULL},
    {"bind_step", bind_step, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, FUNCTIONS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__kernel(void)
{
    fill_crc_table();
    kind_step_done = name("step_done");
    name_drain = name("drain");
    name_set_result = name("set_result");
    name_done = name("done");
    name_note = name("note");
    name_decode = name("decode");
    name_see_what_ended = name("_see_what_ended");
    name_start = name("_start");
    name_main = name("main");
    name_result = name("result");
    name_cancelled = name("cancelled");
    name_check_arguments = name("_check_arguments");
    name_call_exception_handler = name("call_exception_handler");
    name_exception = name("exception");
    name_kind = name("kind");
    name_qualname = name("__qualname__");
    name_name = name("__name__");
    name_context = name("context");
    name_loop = name("loop");
    name_post = name("post");
    name_stopped = name("stopped");
    name_overdue = name("overdue");
    name_ready = name("_ready");
    name_tasks = name("_tasks");
    name_commands = name("_commands");
    name_own_main = name("_main");
    name_pending = name("pending");
    name_operations = name("operations");
    name_digest = name("digest");
    name_outcome = name("outcome");
    name_future = name("future");
    name_now = name("now");
    name_complain_of_spinning = name("_complain_of_spinning");
    name_turn_callbacks_max = name("TURN_CALLBACKS_MAX");
    name_recorded_arguments_bytes_max = name("RECORDED_ARGUMENTS_BYTES_MAX");
    name_value_bytes_max = name("VALUE_BYTES_MAX");
    named_loop = Py_BuildValue("(s)", "loop");
    named_loop_name_context = Py_BuildValue("(sss)", "loop", "name", "context");
    zero = PyLong_FromLong(0);
    one = PyLong_FromLong(1);
    compact_first = PyLong_FromLong(64);
    no_arguments = PyTuple_New(0);
    named_future_and_digest = Py_BuildValue("(ss)", "future", "digest");
    return make_module(&MODULE);
}
