/* The way of a step through the kernel: asking for it, and handing over what came of it.

   Each function here is a twin of a Python function or method of the same name, which is the definition: it says what
   has to happen, and the comments why. A twin does the same for the usual case; before it has changed anything it
   hands whatever is unusual to the other. `perdure/native/__init__.py` says when twins take their places.

   Over 600 lines, and still one thing: what a step passes in the kernel, where one function calls the next without
   going through Python, which is what they are for. */

#include "json.h"

#include <math.h>

#define SITES 1024

/* -- what the modules of Python have ---------------------------------------------------------------------------- */

static PyObject *Loop, *Branch, *Callback, *Task, *StepName, *Run, *StepOperation, *RunStep, *Complete;
static PyObject *Record, *Started, *StepDone, *Row, *Raw, *Step, *StepSpec;
static PyObject *new_future, *current_task, *get_running_loop, *set_running_loop, *unread, *callbacks_max;
static PyObject *encode_json, *arguments_bytes_max, *value_bytes_max, *own_site, *search_site, *step_digest;
static PyObject *init_task, *plain_init_task, *plain_create_task, *plain_finish, *plain_run_ready, *plain_ask_step;
static PyObject *plain_deliver;

static Field loop_ready, loop_stopped, loop_running, loop_post, loop_now, loop_owner, loop_root, loop_overdue;
static Field post_loop, callback_call, callback_context, task_branch, branch_path, branch_single, branch_counts;
static Field run_loop, run_outcome, run_closed, run_operations, run_commands, run_pending, run_replaying, run_last_seq;
static Field run_loops, run_main, pending_operations, pending_digest, spec_name, spec_result, spec_what;
static Field step_location, step_asked_at, step_site, step_data, step_settled, step_future, step_own_digest, step_spec;
static Field record_seq, record_at, record_location, record_body, done_value, done_digest;
static Field loop_generators, loop_failed_tasks, task_context;
static Field loop_numbers, loop_tasks, loop_compact_at, loop_iterations, task_number, branch_scope, run_spec;
static Field workflow_result, codec_scalars, parts_of_step;

static PyObject *zero, *one, *compact_first, *no_arguments;

static PyObject *kind_step_done;
static PyObject *name_drain, *name_set_result, *name_done, *name_note, *name_decode, *name_see_what_ended, *name_start;
static PyObject *name_main, *name_branch, *name_result, *name_cancelled;
static PyObject *name_check_arguments, *name_call_exception_handler, *name_exception, *name_prepare;
static PyObject *name_just_run, *name_kind, *name_qualname, *name_name;
static PyObject *named_loop, *named_future_and_digest, *named_loop_name_context;

static const Known KERNEL[] = {
    {"RunLoop", &Loop}, {"Branch", &Branch}, {"StepName", &StepName}, {"Started", &Started}, {"Complete", &Complete},
    {"Raw", &Raw}, {"init_task", &init_task}, {"RunCallback", &Callback}, {"RunTask", &Task}, {"Run", &Run},
    {"StepOperation", &StepOperation}, {"RunStep", &RunStep}, {"Record", &Record}, {"StepDone", &StepDone},
    {"Row", &Row}, {"StepSpec", &StepSpec}, {"Future", &new_future}, {"current_task", &current_task},
    {"get_running_loop", &get_running_loop}, {"set_running_loop", &set_running_loop}, {"UNREAD", &unread},
    {"TURN_CALLBACKS_MAX", &callbacks_max}, {"RECORDED_ARGUMENTS_BYTES_MAX", &arguments_bytes_max},
    {"encode_json", &encode_json}, {"step_digest", &step_digest}, {NULL, NULL},
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
    {"RunTask", "_number", &task_number}, {"RunTask", "context", &task_context}, {"RunLoop", "generators", &loop_generators},
    {"RunLoop", "failed_tasks", &loop_failed_tasks},
    {"Branch", "scope", &branch_scope}, {"Run", "spec", &run_spec},
    {"WorkflowSpec", "result", &workflow_result}, {"ValueCodec", "scalars", &codec_scalars}, {NULL, NULL, NULL},
};

static const Known STEP[] = {
    {"Step", &Step}, {"own_site", &own_site}, {"search_site", &search_site}, {"VALUE_BYTES_MAX", &value_bytes_max},
    {NULL, NULL},
};

static const Wanted STEP_FIELDS[] = {{"Step", "_parts", &parts_of_step}, {NULL, NULL, NULL}};

/* The number of a Python int that fits; -1 with an exception. */
static inline long long
number_of(PyObject *number)
{
    return PyLong_AsLongLong(number);
}

/* Call the Python function of a method. */
static PyObject *
call_with_self(PyObject *function, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
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
    PyObject *result = PyObject_Vectorcall(function, all, (size_t)count + 1, names);
    PyMem_Free(all);
    return result;
}

/* -- the loop ---------------------------------------------------------------------------------------------------- */

static PyObject *
loop_call_soon(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *context = NULL;
    if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
        if (PyTuple_GET_SIZE(names) > 1 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "context")) {
            PyErr_SetString(PyExc_TypeError, "call_soon() takes no keyword but context");
            return NULL;
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
    if (handle != NULL && PyList_Append(get(self, loop_ready), handle) < 0) {
        Py_CLEAR(handle);
    }
    return handle;
}

/* `handle.context.run(*handle.call)` */
static int
run_callback(PyObject *handle)
{
    PyObject *context = Py_NewRef(get(handle, callback_context)), *call = Py_NewRef(get(handle, callback_call));
    PyObject *result = NULL;
    if (PyContext_Enter(context) == 0) {
        result = PyObject_Vectorcall(
            PyTuple_GET_ITEM(call, 0), &PyTuple_GET_ITEM(call, 1), (size_t)PyTuple_GET_SIZE(call) - 1, NULL);
        if (PyContext_Exit(context) < 0) {
            Py_CLEAR(result);
        }
    }
    Py_DECREF(context);
    Py_DECREF(call);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* A callback raised: what the loop's exception handler is told. */
static int
report(PyObject *loop)
{
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_SystemExit)) {
        return -1;
    }
    PyObject *error = caught(), *told = PyDict_New(), *result = NULL;
    if (told != NULL && PyDict_SetItem(told, name_exception, error) == 0) {
        result = PyObject_CallMethodOneArg(loop, name_call_exception_handler, told);
    }
    Py_XDECREF(told);
    Py_XDECREF(error);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Run what is ready. 1: there are more callbacks than a turn may have. */
static int
run_all(PyObject *loop, PyObject *ready)
{
    Py_ssize_t most = PyLong_AsSsize_t(callbacks_max);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ready); i++) {
        if (i >= most) {
            return 1;
        }
        PyObject *handle = Py_NewRef(PyList_GET_ITEM(ready, i));
        int failed = run_callback(handle) < 0 && report(loop) < 0;
        Py_DECREF(handle);
        if (failed) {
            return -1;
        }
        if (get(loop, loop_stopped) == Py_True) {
            return 0;
        }
    }
    return 0;
}

static PyObject *
loop_run_ready(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *running = PyObject_CallNoArgs(get_running_loop);
    if (running == NULL) {
        return NULL;
    }
    Py_DECREF(running); /* somebody else has it as well, for as long as it runs */
    if (running != self) {
        if ((PyObject *)Py_TYPE(running) != Loop) {
            return PyObject_CallOneArg(plain_run_ready, self);
        }
        PyObject *done = PyObject_CallOneArg(set_running_loop, self);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    PyObject *ready = Py_NewRef(get(self, loop_ready)), *post = Py_NewRef(get(self, loop_post));
    put_new(self, loop_running, Py_True);
    put_new(post, post_loop, self);
    int outcome = run_all(self, ready);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *result = NULL;
    if (outcome == 1) {
        result = PyObject_CallMethod(self, "_complain_of_spinning", NULL);
        PyErr_Fetch(&type, &error, &traceback);
    }
    else if (outcome == 0) {
        result = Py_NewRef(Py_None);
    }
    PyList_SetSlice(ready, 0, PyList_GET_SIZE(ready), NULL);
    Py_DECREF(ready);
    put_new(self, loop_running, Py_False);
    put_new(post, post_loop, Py_None);
    Py_DECREF(post);
    PyObject *overdue = get(self, loop_overdue);
    if (overdue != Py_None) {
        Py_INCREF(overdue);
        Py_XSETREF(result, PyObject_CallNoArgs(overdue)); /* raises: what the turn ended with does not count */
        Py_DECREF(overdue);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return result;
    }
    PyErr_Restore(type, error, traceback);
    return result;
}

/* `make_loop`, whose `__init__` only fills in fields. */
static PyObject *
native_make_loop(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || Loop == NULL) { /* or nothing is bound yet */
        return PyObject_Vectorcall(definition("make_loop"), args, (size_t)count, NULL);
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

static PyObject *
next_number(PyObject *loop)
{
    return PyNumber_Add(get(loop, loop_numbers), one);
}

/* `RunTask.__init__`, outside of the iterations of durable loops. */
static PyObject *
task_init(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || (PyObject *)Py_TYPE(args[1]) != Loop || (PyObject *)Py_TYPE(args[2]) != Branch
        || get(args[2], branch_scope) != Py_None || get(args[1], loop_iterations) != zero) {
        return call_with_self(plain_init_task, self, args, count, NULL);
    }
    PyObject *loop = args[1], *branch = args[2], *path = get(branch, branch_path), *number = next_number(loop);
    if (number == NULL) {
        return NULL;
    }
    put_new(loop, loop_numbers, number);
    put(self, task_number, number);
    put_new(self, task_branch, branch);
    PyObject *context = args[3] == Py_None ? PyContext_CopyCurrent() : Py_NewRef(args[3]);
    if (put_made(self, task_context, context) < 0) {
        return NULL;
    }
    PyObject *fields[] = {self, args[0], loop, PyUnicode_GET_LENGTH(path) ? path : name_main, context};
    return PyObject_Vectorcall(init_task, fields, 2, named_loop_name_context);
}

static PyObject *
task_hash(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(get(self, task_number));
}

static PyMethodDef TASK_METHODS[] = {
    {"__init__", (PyCFunction)(void (*)(void))task_init, METH_FASTCALL, NULL},
    {"__hash__", task_hash, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef LOOP_METHODS[] = {
    {"call_soon", (PyCFunction)(void (*)(void))loop_call_soon, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_run_ready", loop_run_ready, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

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

static PyObject *
branch_locate(PyObject *self, PyObject *name)
{
    if (!is_a(name, (PyObject *)&PyUnicode_Type)) {
        return NULL;
    }
    PyObject *path = get(self, branch_path);
    if (get(self, branch_single) == Py_True) {
        put_new(self, branch_single, Py_False);
        return Py_NewRef(path);
    }
    if (get(self, branch_counts) == Py_None && put_made(self, branch_counts, PyDict_New()) < 0) {
        return NULL;
    }
    PyObject *counts = get(self, branch_counts), *before = PyDict_GetItemWithError(counts, name);
    if (before == NULL && PyErr_Occurred()) {
        return NULL;
    }
    long long count = before == NULL ? 1 : number_of(before) + 1;
    PyObject *number = PyLong_FromLongLong(count);
    if (number == NULL || PyDict_SetItem(counts, name, number) < 0) {
        Py_XDECREF(number);
        return NULL;
    }
    Py_DECREF(number);
    PyObject *last = count > 1 ? numbered(name, count) : Py_NewRef(name);
    if (last == NULL || PyUnicode_GET_LENGTH(path) == 0) {
        return last;
    }
    PyObject *location = PyUnicode_FromFormat("%U/%U", path, last);
    Py_DECREF(last);
    return location;
}

static PyMethodDef BRANCH_METHODS[] = {{"locate", branch_locate, METH_O, NULL}, {NULL, NULL, 0, NULL}};

/* Where the code that is running stands. Borrowed; NULL with an exception. */
static PyObject *
current_branch(PyObject *loop)
{
    PyObject *task = PyObject_CallOneArg(current_task, loop);
    if (task == NULL) {
        return NULL;
    }
    PyObject *branch;
    if ((PyObject *)Py_TYPE(task) == Task) {
        branch = get(task, task_branch);
    }
    else if (task == Py_None) {
        branch = get(loop, loop_root);
    }
    else {
        branch = PyObject_CallMethodNoArgs(loop, name_branch);
        Py_XDECREF(branch); /* the task has it */
    }
    Py_DECREF(task); /* whoever runs has it */
    return branch;
}

static PyObject *
make_step(PyObject *loop, PyObject *location, PyObject *number, PyObject *site, PyObject *spec, PyObject *args,
          PyObject *data, PyObject *digest)
{
    PyObject *future = PyObject_Vectorcall(new_future, &loop, 0, named_loop);
    if (future == NULL) {
        return NULL;
    }
    PyObject *fields[] = {location, number, get(loop, loop_now), site, spec, args, data, future, digest};
    PyObject *step = PyObject_Vectorcall(StepOperation, fields, 7, named_future_and_digest);
    Py_DECREF(future);
    return step;
}

/* The step is pending from now on. */
static int
add_step(PyObject *run, PyObject *step, PyObject *location, PyObject *digest)
{
    PyObject *pending = get(run, run_pending);
    if (get(run, run_replaying) != Py_True) {
        PyObject *command = PyObject_CallOneArg(RunStep, step);
        int failed = command == NULL || PyList_Append(get(run, run_commands), command) < 0;
        Py_XDECREF(command);
        if (failed) {
            return -1;
        }
    }
    if (PyDict_SetItem(get(pending, pending_operations), location, step) < 0) {
        return -1;
    }
    return put_made(pending, pending_digest, PyNumber_Add(get(pending, pending_digest), digest));
}

static PyObject *
run_ask_step(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *loop = get(self, run_loop);
    if (count != 4 || get(self, run_outcome) != Py_None || get(self, run_closed) == Py_True) {
        return call_with_self(plain_ask_step, self, args, count, NULL);
    }
    if (!is_a(args[0], StepSpec) || !is_a(args[2], (PyObject *)&PyBytes_Type)) {
        return NULL;
    }
    PyObject *spec = args[0], *branch = current_branch(loop);
    PyObject *number = branch == NULL ? NULL : PyLong_FromLongLong(number_of(get(self, run_operations)) + 1);
    if (number == NULL) {
        return NULL;
    }
    put_new(self, run_operations, number);
    PyObject *location = branch_locate(branch, get(spec, spec_name)), *digest = NULL, *step = NULL;
    Py_ssize_t size;
    const char *text = location == NULL ? NULL : PyUnicode_AsUTF8AndSize(location, &size);
    if (text != NULL) {
        digest = PyLong_FromUnsignedLong(crc32(text, size, (unsigned int)PyLong_AsUnsignedLongMask(step_digest)));
    }
    if (digest != NULL) {
        step = make_step(loop, location, number, args[3], spec, args[1], args[2], digest);
    }
    if (step != NULL && add_step(self, step, location, digest) < 0) {
        Py_CLEAR(step);
    }
    Py_DECREF(number);
    Py_XDECREF(location);
    Py_XDECREF(digest);
    return step;
}

/* `RunLoop.create_task` for the coroutine of a step, the usual member of a gather. */
static PyObject *
loop_create_task(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *parent, *title = NULL, *location, *branch, *task = NULL, *tasks = get(self, loop_tasks);
    if (count != 1 || (names != NULL && PyTuple_GET_SIZE(names)) || get(self, loop_iterations) != zero
        || !PyCoro_CheckExact(args[0]) || PyList_GET_SIZE(tasks) + 1 >= PyLong_AsSsize_t(get(self, loop_compact_at))) {
        goto other;
    }
    title = PyObject_GetAttr(args[0], name_qualname);
    if (title == NULL || (PyObject *)Py_TYPE(title) != StepName) {
        PyErr_Clear();
        goto other;
    }
    parent = current_branch(self);
    if (parent == NULL || get(parent, branch_scope) != Py_None) {
        PyErr_Clear();
        goto other;
    }
    Py_SETREF(title, PyObject_GetAttr(args[0], name_name));
    location = title == NULL ? NULL : branch_locate(parent, title);
    Py_XDECREF(title);
    if (location == NULL) {
        return NULL;
    }
    PyObject *fields[] = {location, Py_True};
    branch = PyObject_Vectorcall(Branch, fields, 2, NULL);
    Py_DECREF(location);
    if (branch != NULL) {
        PyObject *made_from[] = {args[0], self, branch, Py_None};
        task = PyObject_Vectorcall(Task, made_from, 4, NULL);
        Py_DECREF(branch);
    }
    if (task != NULL && PyList_Append(tasks, task) < 0) {
        Py_CLEAR(task);
    }
    return task;
other:
    Py_XDECREF(title);
    return call_with_self(plain_create_task, self, args, count, names);
}

static PyMethodDef SPAWNING_METHODS[] = {
    {"create_task", (PyCFunction)(void (*)(void))loop_create_task, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

/* -- handing over what came of it -------------------------------------------------------------------------------- */

/* The time of the run is that of the last record, and never goes back. */
static int
move_on(PyObject *run, PyObject *loop, PyObject *seq, PyObject *at, PyObject *location)
{
    put_new(run, run_last_seq, seq);
    int later = PyObject_RichCompareBool(at, get(loop, loop_now), Py_GT);
    if (later > 0) {
        put_new(loop, loop_now, at);
    }
    PyObject *loops = get(run, run_loops);
    if (later < 0 || loops == Py_None) {
        return later < 0 ? -1 : 0;
    }
    PyObject *noted = PyObject_CallMethodObjArgs(loops, name_note, seq, location, NULL);
    Py_XDECREF(noted);
    return noted == NULL ? -1 : 0;
}

/* `Pending.remove` */
static int
remove_step(PyObject *pending, PyObject *operations, PyObject *step, PyObject *location)
{
    if (PyDict_DelItem(operations, location) < 0) {
        return -1;
    }
    put_new(step, step_settled, Py_True);
    PyObject *digest = PyNumber_Subtract(get(pending, pending_digest), get(step, step_own_digest));
    return put_made(pending, pending_digest, digest);
}

/* Whether something came to an end, so that there is more to do than to wait; -1 with an exception. */
static int
may_be_over(PyObject *run, PyObject *operations)
{
    if (get(run, run_outcome) != Py_None || PyDict_GET_SIZE(operations) == 0) {
        return 1;
    }
    PyObject *done = PyObject_CallMethodNoArgs(get(run, run_main), name_done);
    int is_done = done == NULL ? -1 : done == Py_True;
    Py_XDECREF(done);
    return is_done;
}

static int
see_what_ended(PyObject *run, PyObject *operations)
{
    int over = may_be_over(run, operations);
    if (over > 0) {
        PyObject *seen = PyObject_CallMethodNoArgs(run, name_see_what_ended);
        Py_XDECREF(seen);
        return seen == NULL ? -1 : 0;
    }
    return over;
}

/* Settle the future of a step that is no longer pending, and let the code run until it is idle. */
static int
go_on(PyObject *run, PyObject *loop, PyObject *operations, PyObject *step, PyObject *value)
{
    PyObject *future = Py_NewRef(get(step, step_future));
    put_new(step, step_future, Py_None);
    PyObject *done = PyObject_CallMethodOneArg(future, name_set_result, value);
    Py_DECREF(future);
    if (done != NULL) {
        Py_DECREF(done);
        done = PyObject_CallMethodNoArgs(loop, name_drain);
    }
    if (done == NULL) {
        return -1;
    }
    Py_DECREF(done);
    return see_what_ended(run, operations);
}

static PyObject *
take_commands(PyObject *run)
{
    PyObject *empty = PyList_New(0);
    if (empty == NULL) {
        return NULL;
    }
    PyObject *commands = Py_NewRef(get(run, run_commands));
    put(run, run_commands, empty);
    return commands;
}

static PyObject *
run_deliver_result(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "deliver_result() takes seq, at, step and value");
        return NULL;
    }
    if (!is_a(args[2], StepOperation)) {
        return NULL;
    }
    PyObject *loop = get(self, run_loop), *pending = get(self, run_pending), *step = args[2];
    PyObject *operations = Py_NewRef(get(pending, pending_operations)), *location = get(step, step_location);
    PyObject *commands = NULL;
    if (move_on(self, loop, args[0], args[1], location) == 0
        && remove_step(pending, operations, step, location) == 0 && go_on(self, loop, operations, step, args[3]) == 0) {
        commands = take_commands(self);
    }
    Py_DECREF(operations);
    return commands;
}

/* A record of a step whose arguments are not those of now. */
static int
check_arguments(PyObject *run, PyObject *step, PyObject *recorded)
{
    PyObject *data = get(step, step_data);
    if (get(run, run_replaying) != Py_True) {
        return 0;
    }
    if (PyBytes_CheckExact(data)
        && PyLong_AsUnsignedLong(recorded) == crc32(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0)) {
        return 0;
    }
    PyErr_Clear();
    PyObject *checked = PyObject_CallMethodObjArgs(run, name_check_arguments, step, recorded, NULL);
    Py_XDECREF(checked);
    return checked == NULL ? -1 : 0;
}

/* The first record of a run. */
static PyObject *
deliver_started(PyObject *run, PyObject *record, PyObject *body)
{
    put_new(run, run_last_seq, get(record, record_seq));
    PyObject *done = PyObject_CallMethodObjArgs(run, name_start, record, body, NULL);
    if (done != NULL) {
        Py_DECREF(done);
        done = PyObject_CallMethodNoArgs(get(run, run_loop), name_drain);
    }
    if (done == NULL) {
        return NULL;
    }
    Py_DECREF(done);
    PyObject *operations = Py_NewRef(get(get(run, run_pending), pending_operations));
    PyObject *commands = see_what_ended(run, operations) < 0 ? NULL : take_commands(run);
    Py_DECREF(operations);
    return commands;
}

static PyObject *
run_deliver(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "deliver() takes a record and, perhaps, what it decodes to");
        return NULL;
    }
    PyObject *record = args[0], *loop = get(self, run_loop), *body, *location, *pending, *operations, *step;
    if ((PyObject *)Py_TYPE(record) != Record) {
        goto other;
    }
    body = get(record, record_body);
    if ((PyObject *)Py_TYPE(body) == Started && get(self, run_loops) == Py_None && loop == Py_None) {
        return deliver_started(self, record, body);
    }
    if ((PyObject *)Py_TYPE(body) != StepDone || loop == Py_None) {
        goto other;
    }
    location = get(record, record_location);
    pending = get(self, run_pending);
    operations = get(pending, pending_operations);
    step = PyDict_GetItemWithError(operations, location);
    if (step == NULL || (PyObject *)Py_TYPE(step) != StepOperation) {
        PyErr_Clear();
        goto other;
    }
    Py_INCREF(operations);
    Py_INCREF(step);
    PyObject *commands = NULL, *value = NULL;
    if (move_on(self, loop, get(record, record_seq), get(record, record_at), location) == 0
        && remove_step(pending, operations, step, location) == 0
        && check_arguments(self, step, get(body, done_digest)) == 0) {
        if (count == 2 && args[1] != unread) {
            value = Py_NewRef(args[1]);
        }
        else {
            PyObject *spec = get(step, step_spec);
            value = PyObject_CallMethodObjArgs(
                get(spec, spec_result), name_decode, get(body, done_value), get(spec, spec_what), NULL);
        }
    }
    if (value != NULL && go_on(self, loop, operations, step, value) == 0) {
        commands = take_commands(self);
    }
    Py_XDECREF(value);
    Py_DECREF(step);
    Py_DECREF(operations);
    return commands;
other:;
    PyObject *all[] = {self, record, count > 1 ? args[1] : unread};
    return PyObject_Vectorcall(plain_deliver, all, 3, NULL);
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
    PyErr_Clear(); /* whoever asks again meets the same error */
    return value;
}

/* `Run._finish` of code that has returned a scalar and left nothing behind. */
static PyObject *
run_finish(PyObject *self, PyObject *main)
{
    PyObject *codec = get(get(self, run_spec), workflow_result), *value = NULL;
    if (PyDict_GET_SIZE(get(get(self, run_pending), pending_operations)) == 0
        && PyList_GET_SIZE(get(get(self, run_loop), loop_tasks)) == 1
        && get(get(self, run_loop), loop_failed_tasks) == Py_None) {
        value = returned_by(main);
    }
    int is_scalar = value == NULL ? 0 : is_scalar_of(get(codec, codec_scalars), value);
    char buffer[BUFFER_SIZE], *end = is_scalar > 0 ? add_scalar(buffer, value) : NULL;
    Py_XDECREF(value);
    if (end == NULL) {
        PyErr_Clear();
        PyObject *all[] = {self, main};
        return PyObject_Vectorcall(plain_finish, all, 2, NULL);
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

static PyMethodDef RUN_METHODS[] = {
    {"_finish", run_finish, METH_O, NULL},
    {"ask_step", (PyCFunction)(void (*)(void))run_ask_step, METH_FASTCALL, NULL},
    {"deliver_result", (PyCFunction)(void (*)(void))run_deliver_result, METH_FASTCALL, NULL},
    {"deliver", (PyCFunction)(void (*)(void))run_deliver, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* -- what is stored of it ---------------------------------------------------------------------------------------- */

/* A `Row`; takes over the reference to `data`. */
static PyObject *
make_row(PyObject *seq, PyObject *at, PyObject *kind, PyObject *location, PyObject *data)
{
    Py_ssize_t kind_size, size;
    const char *kind_text = PyUnicode_AsUTF8AndSize(kind, &kind_size), *text = PyUnicode_AsUTF8AndSize(location, &size);
    PyObject *row = NULL, *check = NULL;
    if (kind_text != NULL && text != NULL) {
        unsigned long long start = PyLong_AsUnsignedLongLongMask(seq) ^ PyLong_AsUnsignedLongLongMask(at);
        unsigned int crc = crc32(kind_text, kind_size, (unsigned int)start);
        crc = crc32(text, size, crc32(" ", 1, crc));
        check = PyLong_FromUnsignedLong(crc32(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), crc));
    }
    if (check != NULL) {
        row = ((PyTypeObject *)Row)->tp_alloc((PyTypeObject *)Row, 6);
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
native_to_row(PyObject *Py_UNUSED(module), PyObject *record)
{
    if ((PyObject *)Py_TYPE(record) != Record) { /* or nothing is bound yet */
        return PyObject_CallOneArg(definition("to_row"), record);
    }
    PyObject *body = get(record, record_body), *data = PyObject_CallOneArg(encode_json, body);
    if (data == NULL) {
        return NULL;
    }
    PyObject *kind = (PyObject *)Py_TYPE(body) == StepDone ? Py_NewRef(kind_step_done)
                                                            : PyObject_GetAttr(body, name_kind);
    if (kind == NULL) {
        Py_DECREF(data);
        return NULL;
    }
    PyObject *row =
        make_row(get(record, record_seq), get(record, record_at), kind, get(record, record_location), data);
    Py_DECREF(kind);
    return row;
}

/* The JSON of a `StepDone`; NULL, without an exception, if only msgspec knows how to write it. */
static PyObject *
step_done_json(PyObject *step, long long number, PyObject *value)
{
    PyObject *args = get(step, step_data);
    Py_ssize_t site_size, args_size = PyBytes_CheckExact(args) ? PyBytes_GET_SIZE(args) : PY_SSIZE_T_MAX;
    const char *site = json_text(get(step, step_site), &site_size);
    if (site == NULL || args_size > TEXT_MAX || args_size > PyLong_AsSsize_t(arguments_bytes_max)) {
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

static PyObject *
native_step_row(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "step_row() takes seq, at, step, number and value");
        return NULL;
    }
    if (!is_a(args[2], StepOperation)) {
        return NULL;
    }
    PyObject *data = step_done_json(args[2], number_of(args[3]), args[4]);
    if (data == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return make_row(args[0], args[1], kind_step_done, get(args[2], step_location), data);
}

static PyObject *
native_encode_step_frontier(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *step = count == 2 ? args[1] : NULL;
    Py_ssize_t size, site_size;
    const char *location = NULL, *site = NULL;
    if (step != NULL && (PyObject *)Py_TYPE(step) == StepOperation) {
        location = json_text(get(step, step_location), &size);
        site = json_text(get(step, step_site), &site_size);
    }
    if (location == NULL || site == NULL) {
        return PyObject_Vectorcall(definition("encode_step_frontier"), args, (size_t)count, NULL);
    }
    char buffer[BUFFER_SIZE], *end = add_number(ADD(buffer, "{\"seq\":"), number_of(args[0]));
    end = add_number(ADD(end, ",\"count\":1,\"digest\":"), number_of(get(step, step_own_digest)));
    end = ADD(add(ADD(end, ",\"operations\":[{\"kind\":\"step\",\"location\":\""), location, size), "\",\"since\":");
    end = add_number(end, number_of(get(step, step_asked_at)));
    if (site_size) {
        end = ADD(add(ADD(end, ",\"site\":\""), site, site_size), "\"");
    }
    end = ADD(end, "}]}");
    return PyErr_Occurred() ? NULL : PyBytes_FromStringAndSize(buffer, end - buffer);
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
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL) {
        return PyUnicode_FromString("");
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int instruction = PyFrame_GetLasti(frame);
    size_t place = (((size_t)code >> 5) ^ ((size_t)instruction * 31)) % SITES;
    if (sites[place].code == code && sites[place].instruction == instruction) {
        Py_DECREF(code);
        return Py_NewRef(sites[place].label);
    }
    PyObject *label = PyObject_CallOneArg(own_site, (PyObject *)frame);
    if (label == NULL || PyUnicode_GET_LENGTH(label) == 0) {
        Py_DECREF(code);
        Py_XDECREF(label);
        return label == NULL ? NULL : PyObject_CallOneArg(search_site, (PyObject *)frame);
    }
    Py_XSETREF(sites[place].code, code);
    Py_XSETREF(sites[place].label, Py_NewRef(label));
    sites[place].instruction = instruction;
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
    Py_DECREF(kinds);
    if (form == NULL || form == Py_None) {
        return NULL;
    }
    PyObject *call = PyObject_Vectorcall(form, args, (size_t)count, NULL);
    PyObject *data = call == NULL ? NULL : PyObject_CallOneArg(encode_json, call);
    Py_XDECREF(call);
    if (data != NULL && PyBytes_GET_SIZE(data) > PyLong_AsSsize_t(value_bytes_max)) {
        Py_CLEAR(data);
    }
    return data;
}

/* Call a method with the arguments of a call as a tuple and a dictionary. */
static PyObject *
hand_on(PyObject *callable, PyObject *name, PyObject *const *args, Py_ssize_t count, PyObject *names)
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
        result = name == NULL ? PyObject_CallFunctionObjArgs(callable, positional, named, NULL)
                              : PyObject_CallMethodObjArgs(callable, name, positional, named, NULL);
    }
    Py_XDECREF(positional);
    Py_XDECREF(named);
    return result;
}

static PyObject *
step_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *loop = PyObject_CallNoArgs(get_running_loop);
    if (loop == NULL) {
        return NULL;
    }
    Py_DECREF(loop); /* it is running */
    PyObject *run = (PyObject *)Py_TYPE(loop) == Loop ? get(loop, loop_owner) : Py_None;
    if (run == Py_None) {
        return hand_on(self, name_just_run, args, count, names);
    }
    PyObject *parts = Py_NewRef(get(self, parts_of_step));
    if (parts == Py_None) {
        Py_SETREF(parts, PyObject_CallMethodNoArgs(self, name_prepare));
    }
    if (parts == NULL) {
        return NULL;
    }
    Py_INCREF(run);
    PyObject *spec = PyTuple_GET_ITEM(parts, 0), *ask = PyTuple_GET_ITEM(parts, 2), *seen = NULL, *site = NULL;
    PyObject *data = NULL, *asked = NULL;
    if (names == NULL || PyTuple_GET_SIZE(names) == 0) {
        data = encode_directly(PyTuple_GET_ITEM(parts, 3), args, count);
    }
    if (data != NULL) {
        seen = PyTuple_New(count);
        for (Py_ssize_t i = 0; seen != NULL && i < count; i++) {
            PyTuple_SET_ITEM(seen, i, Py_NewRef(args[i]));
        }
    }
    else { /* the other one meets the same error, if it is one */
        PyErr_Clear();
        PyObject *encoded = hand_on(PyTuple_GET_ITEM(parts, 1), NULL, args, count, names);
        if (encoded != NULL) {
            data = Py_NewRef(PyTuple_GET_ITEM(encoded, 0));
            seen = Py_NewRef(PyTuple_GET_ITEM(encoded, 1));
            Py_DECREF(encoded);
        }
    }
    if (data != NULL && seen != NULL) {
        site = current_site();
    }
    if (site != NULL) {
        PyObject *all[] = {run, spec, seen, data, site};
        asked = PyObject_Vectorcall(ask, all, 5, NULL);
    }
    Py_XDECREF(data);
    Py_XDECREF(seen);
    Py_XDECREF(site);
    Py_DECREF(parts);
    Py_DECREF(run);
    return asked;
}

static PyMethodDef STEP_METHODS[] = {
    {"__call__", (PyCFunction)(void (*)(void))step_call, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

/* -- taking their places ----------------------------------------------------------------------------------------- */

static PyObject *
bind_kernel(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (keep_known(given, KERNEL) < 0 || find_fields(given, KERNEL_FIELDS) < 0) {
        return NULL;
    }
    if (replace_methods(Loop, LOOP_METHODS) < 0 || replace_methods(Loop, SPAWNING_METHODS) < 0
        || replace_methods(Task, TASK_METHODS) < 0 || replace_methods(Branch, BRANCH_METHODS) < 0
        || replace_methods(Run, RUN_METHODS) < 0
        || (plain_init_task = definition("RunTask.__init__")) == NULL
        || (plain_create_task = definition("RunLoop.create_task")) == NULL
        || (plain_finish = definition("Run._finish")) == NULL
        || (plain_run_ready = definition("RunLoop._run_ready")) == NULL
        || (plain_ask_step = definition("Run.ask_step")) == NULL
        || (plain_deliver = definition("Run.deliver")) == NULL) {
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
        int same = same_data(key, other_key);
        same = same > 0 ? same_data(item, other) : same;
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
            same = same_data(PySequence_Fast_GET_ITEM(before, i), PySequence_Fast_GET_ITEM(after, i));
        }
    }
    Py_LeaveRecursiveCall();
    return same;
}

static PyObject *
native_same_data(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "same_data() takes two values");
        return NULL;
    }
    int same = same_data(args[0], args[1]);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* Keep the Python function whose twin is about to take its place. */
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
    if (keep_known(given, STEP) < 0 || find_fields(given, STEP_FIELDS) < 0 || replace_methods(Step, STEP_METHODS) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef FUNCTIONS[] = {
    {"to_row", native_to_row, METH_O, NULL},
    {"step_row", (PyCFunction)(void (*)(void))native_step_row, METH_FASTCALL, NULL},
    {"encode_step_frontier", (PyCFunction)(void (*)(void))native_encode_step_frontier, METH_FASTCALL, NULL},
    {"make_loop", (PyCFunction)(void (*)(void))native_make_loop, METH_FASTCALL, NULL},
    {"same_data", (PyCFunction)(void (*)(void))native_same_data, METH_FASTCALL, NULL},
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
    name_branch = name("branch");
    name_result = name("result");
    name_cancelled = name("cancelled");
    name_qualname = name("__qualname__");
    name_name = name("__name__");
    name_check_arguments = name("_check_arguments");
    name_call_exception_handler = name("call_exception_handler");
    name_exception = name("exception");
    name_prepare = name("_prepare");
    name_just_run = name("_just_run");
    name_kind = name("kind");
    named_loop = Py_BuildValue("(s)", "loop");
    named_loop_name_context = Py_BuildValue("(sss)", "loop", "name", "context");
    zero = PyLong_FromLong(0);
    one = PyLong_FromLong(1);
    compact_first = PyLong_FromLong(64);
    no_arguments = PyTuple_New(0);
    named_future_and_digest = Py_BuildValue("(ss)", "future", "digest");
    return make_module(&MODULE);
}
