/* node.c: a forward and its backward as one node of PyTorch's autograd, without Python in the
 * backward. in -> out: the runs of a Pair, PyTorch's stable C functions -> the kernels of an
 * operator that PyTorch differentiates and leaves to others to compute,
 * _scaled_dot_product_fused_attention_overrideable.
 *
 * The operator hands its attn_bias to its backward as it is. Here it is a token: two 64-bit numbers
 * on the host that tell which Pair runs. Its storage holds the Pair, and PyTorch saves it with Q, K
 * and V. */
#include "python/binding.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- PyTorch's stable C ABI, torch/csrc/inductor/aoti_torch/c/shim.h ---- */

typedef struct tensor *tensor; /* AtenTensorHandle, its owner's */

/* What each does for us, its name there, its arguments. All but the last return 0 or have failed.
 */
#define TORCH_FUNCTIONS(X)                                                                         \
  X(address_of, aoti_torch_get_data_ptr, (tensor, void **))                                        \
  X(strides_of, aoti_torch_get_strides, (tensor, int64_t **))                                      \
  X(elements_of, aoti_torch_get_numel, (tensor, int64_t *))                                        \
  X(dtype_of, aoti_torch_get_dtype, (tensor, int32_t *))                                           \
  X(device_of, aoti_torch_get_device_type, (tensor, int32_t *))                                    \
  X(make, aoti_torch_empty_strided,                                                                \
    (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, tensor *))              \
  X(make_undefined, aoti_torch_new_uninitialized_tensor, (tensor *))                               \
  X(copy, aoti_torch_copy_, (tensor, tensor, int32_t))                                             \
  X(drop, aoti_torch_delete_tensor_object, (tensor))                                               \
  X(drop_optional, torch_delete_stable_ivalue, (uint64_t *))                                       \
  X(drop_list, torch_delete_list, (void *))                                                        \
  X(enter_device, aoti_torch_create_device_guard, (int32_t, void **))                              \
  X(leave_device, aoti_torch_delete_device_guard, (void *))                                        \
  X(library_of, aoti_torch_library_init_impl,                                                      \
    (const char *, const char *, const char *, uint32_t, void **))                                 \
  X(implement, aoti_torch_library_impl,                                                            \
    (void *, const char *, void (*)(uint64_t *, uint64_t, uint64_t)))

static struct {
#define X(name, symbol, arguments) int(*name) arguments;
  TORCH_FUNCTIONS(X)
#undef X
  void (*check)(bool holds, const char *function, const char *file, uint32_t line,
                const char *text);
  void (*warn)(const char *function, const char *file, uint32_t line, const char *text);
  bool (*records)(void); /* gradients */
  const char *(*detail)(void);
} torch;

enum {
  FLOAT32 = 6,
  INT64 = 4,
  UINT8 = 0,
  HOST = 0,
  CUDA = 1
}; /* c10::ScalarType, c10::DeviceType */

/* ---- Pair(forward, backward, layouts, bytes of workspaces) ---- */

enum { NEW_O, NEW_LSE, NEW_DQ, NEW_DK, NEW_DV, LAYOUTS };

struct layout {
  int64_t dims, sizes[DIMS], strides[DIMS];
};

struct pair {
  PyObject_HEAD;
  const struct prepared *forward, *backward;
  PyObject *held;
  int64_t number;
  int64_t forward_bytes, backward_bytes; /* of workspaces; 0: none */
  struct layout layouts[LAYOUTS];
};

/* All Pairs by number. Runs hold the lock for reading, as a Pair may go meanwhile where its token
 * was copied. Nobody waits for the lock with the GIL held. */
static struct {
  pthread_rwlock_t lock;
  struct pair **pairs;
  int64_t count;
} known = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static const int64_t TOKEN_MAGIC = 0x656e757461660001; /* "fatune", a version */

static int64_t add_pair(struct pair *pair) {
  Py_BEGIN_ALLOW_THREADS;
  pthread_rwlock_wrlock(&known.lock);
  Py_END_ALLOW_THREADS;
  struct pair **const more =
      realloc(known.pairs, (size_t)(known.count + 1) * sizeof(struct pair *));
  const int64_t number = more ? known.count++ : -1;
  if (more) known.pairs = more;
  if (more) more[number] = pair;
  pthread_rwlock_unlock(&known.lock);
  return number;
}

static bool read_layout(PyObject *given, struct layout *layout) {
  PyObject *sizes, *strides;
  if (!PyArg_ParseTuple(given, "O!O!", &PyTuple_Type, &sizes, &PyTuple_Type, &strides))
    return false;
  layout->dims = PyTuple_Size(sizes);
  if (layout->dims > DIMS || PyTuple_Size(strides) != layout->dims) {
    PyErr_SetString(PyExc_ValueError, "a layout has no sizes and strides of up to 4 dimensions");
    return false;
  }
  for (Py_ssize_t n = 0; n < layout->dims; n++) {
    layout->sizes[n] = PyLong_AsLongLong(PyTuple_GetItem(sizes, n));
    layout->strides[n] = PyLong_AsLongLong(PyTuple_GetItem(strides, n));
  }
  return !PyErr_Occurred();
}

static PyObject *pair_new(PyTypeObject *type, PyObject *args, PyObject *names) {
  struct pair given = {0};
  PyObject *forward, *backward, *layouts;
  long long forward_bytes, backward_bytes;
  (void)names;
  if (!PyArg_ParseTuple(args, "OOO!LL", &forward, &backward, &PyTuple_Type, &layouts,
                        &forward_bytes, &backward_bytes))
    return NULL;
  if (!is_prepared(forward) || !is_prepared(backward) || PyTuple_Size(layouts) != LAYOUTS) {
    PyErr_SetString(PyExc_TypeError,
                    "Pair() takes two Prepared, the layouts of O, LSE, dQ, dK, dV");
    return NULL;
  }
  for (int n = 0; n < LAYOUTS; n++)
    if (!read_layout(PyTuple_GetItem(layouts, n), &given.layouts[n])) return NULL;
  struct pair *const pair = (struct pair *)new_object(type);
  if (!pair) return NULL;
  given.ob_base = pair->ob_base;
  given.forward = (const struct prepared *)forward;
  given.backward = (const struct prepared *)backward;
  given.forward_bytes = forward_bytes;
  given.backward_bytes = backward_bytes;
  given.held = args;
  Py_INCREF(args);
  *pair = given;
  pair->number = add_pair(pair);
  if (pair->number >= 0) return (PyObject *)pair;
  Py_DECREF(pair);
  return PyErr_NoMemory();
}

static void pair_free(PyObject *self) {
  struct pair *const pair = (struct pair *)self;
  if (pair->number >= 0) {
    Py_BEGIN_ALLOW_THREADS;
    pthread_rwlock_wrlock(&known.lock);
    Py_END_ALLOW_THREADS;
    known.pairs[pair->number] = NULL;
    pthread_rwlock_unlock(&known.lock);
  }
  Py_XDECREF(pair->held);
  free_object(self);
}

/* token() -> (a mark, its number): what the token holds. */
static PyObject *pair_token(PyObject *self, PyObject *args) {
  (void)args;
  return Py_BuildValue("LL", (long long)TOKEN_MAGIC, (long long)((struct pair *)self)->number);
}

static PyMethodDef pair_methods[] = {{"token", pair_token, METH_NOARGS, NULL}, {0}};
static PyType_Slot pair_slots[] = {{Py_tp_new, (void *)pair_new},
                                   {Py_tp_dealloc, (void *)pair_free},
                                   {Py_tp_methods, pair_methods},
                                   {0, NULL}};
PyType_Spec pair_spec = {.name = "fatune._binding.Pair",
                         .basicsize = sizeof(struct pair),
                         .flags = Py_TPFLAGS_DEFAULT,
                         .slots = pair_slots};

/* ---- the kernels; an error is a text, thrown when nothing is held any more ---- */

enum { TEXT_MOST = 1024 };

static bool fail(char *why, const char *text) {
  snprintf(why, TEXT_MOST, "fatune's attention: %s", text);
  return false;
}

/* With the lock held for reading where true. */
static bool find_pair(tensor token, const struct pair **pair, char *why) {
  int64_t elements = 0;
  int32_t dtype = -1, device = -1;
  void *data = NULL;
  if (!token || torch.elements_of(token, &elements) || torch.dtype_of(token, &dtype) ||
      torch.device_of(token, &device) || torch.address_of(token, &data) || elements != 2 ||
      dtype != INT64 || device != HOST || ((int64_t *)data)[0] != TOKEN_MAGIC)
    return fail(why, "attn_bias is no token of fatune.attention, which alone calls this operator");
  const int64_t number = ((int64_t *)data)[1];
  pthread_rwlock_rdlock(&known.lock);
  *pair = number >= 0 && number < known.count ? known.pairs[number] : NULL;
  if (*pair) return true;
  pthread_rwlock_unlock(&known.lock);
  return fail(why, "what the saved token stands for is gone");
}

/* What a thread does before its first run; the GIL is not held. */
static bool enter_thread(const struct prepared *prepared, char *why) {
  if (has_entered(prepared)) return true;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool entered = enter_once(prepared);
  if (!entered) PyErr_Clear();
  PyGILState_Release(state);
  return entered || fail(why, "the device cannot be used in this thread");
}

static int device_type(const struct prepared *prepared) {
  return prepared->device < 0 ? HOST : CUDA;
}

static int device_index(const struct prepared *prepared) {
  return prepared->device < 0 ? 0 : prepared->device;
}

static bool make(const struct prepared *prepared, const struct layout *layout, int32_t dtype,
                 tensor *made, char *why) {
  return !torch.make(layout->dims, layout->sizes, layout->strides, dtype, device_type(prepared),
                     device_index(prepared), made) ||
         fail(why, "there is no memory left (CUDA out of memory)");
}

/* Launches with the tensors in their order, NULL: none; then a workspace of so many bytes. */
static bool launch(const struct prepared *prepared, const tensor *tensors, int count, int64_t bytes,
                   char *why) {
  struct given given;
  const struct layout flat = {.dims = 1, .sizes = {bytes + WORKSPACE_ALIGNMENT}, .strides = {1}};
  tensor workspace = NULL;
  void *address, *stream = NULL;
  int64_t *strides;
  int status = -1;
  begin_run(prepared, &given);
  if (bytes && !make(prepared, &flat, UINT8, &workspace, why)) return false;
  for (int n = 0; n < count + (bytes != 0); n++) {
    const tensor of = n < count ? tensors[n] : workspace;
    address = NULL;
    if (of && torch.address_of(of, &address)) goto done;
    set_word(prepared, n, (uintptr_t)address, &given);
    if (!of || !prepared->places[n].strided) continue;
    if (torch.strides_of(of, &strides)) goto done;
    set_strides(prepared, n, strides, &given);
  }
  if (prepared->device >= 0 &&
      prepared->exchange->api->current_stream(ON_CUDA, prepared->device, &stream))
    goto done;
  status = prepared->run(prepared->plan, &given.arguments, stream);
done:
  if (workspace) torch.drop(workspace);
  return status == 0 || fail(why, status < 0 ? "a tensor cannot be read" : torch.detail());
}

static bool launch_there(const struct prepared *prepared, const tensor *tensors, int count,
                         int64_t bytes, char *why) {
  void *guard = NULL;
  const bool several = prepared->device >= 0 && prepared->exchange->current_device != Py_None;
  if (several && torch.enter_device(prepared->device, &guard))
    return fail(why, "the device cannot be made the current one");
  const bool launched = launch(prepared, tensors, count, bytes, why);
  if (guard) torch.leave_device(guard);
  return launched;
}

/* Puts what an optional argument holds in its place, 0: nothing. */
static void open_optional(uint64_t *word) {
  uint64_t *const holder = (uint64_t *)(uintptr_t)*word;
  *word = holder ? *holder : 0;
  if (holder) torch.drop_optional(holder);
}

static tensor tensor_in(uint64_t word) {
  return (tensor)(uintptr_t)word;
}

static uint64_t word_of(tensor made) {
  return (uint64_t)(uintptr_t)made;
}

static void drop_all(tensor *tensors, int count) {
  for (int n = 0; n < count; n++)
    if (tensors[n]) torch.drop(tensors[n]);
}

/* The operator's arguments and results, in their order. */
enum { F_Q, F_K, F_V, F_TOKEN, F_SCALE = 7, F_O = 0, F_LSE, F_QUERIES = 4, F_KEYS, F_RESULTS = 9 };

static bool run_forward(const tensor *given, tensor token, tensor *made, char *why) {
  const struct pair *pair;
  int32_t dtype = 0;
  if (!find_pair(token, &pair, why)) return false;
  const struct prepared *const prepared = pair->forward;
  bool right = !torch.dtype_of(given[F_Q], &dtype) || fail(why, "a tensor cannot be read");
  right = right && enter_thread(prepared, why) &&
          make(prepared, &pair->layouts[NEW_O], dtype, &made[0], why) &&
          make(prepared, &pair->layouts[NEW_LSE], FLOAT32, &made[1], why);
  const tensor tensors[] = {given[F_Q], given[F_K], given[F_V], made[0], made[1]};
  right = right && launch_there(prepared, tensors, 5, pair->forward_bytes, why);
  pthread_rwlock_unlock(&known.lock);
  return right;
}

static void serve_forward(uint64_t *stack, uint64_t given, uint64_t results) {
  char why[TEXT_MOST] = "";
  tensor made[2] = {0};
  (void)given;
  open_optional(&stack[F_TOKEN]);
  open_optional(&stack[F_SCALE]);
  tensor inputs[] = {tensor_in(stack[F_Q]), tensor_in(stack[F_K]), tensor_in(stack[F_V]),
                     tensor_in(stack[F_TOKEN])};
  const bool right = run_forward(inputs, inputs[F_TOKEN], made, why);
  drop_all(inputs, 4);
  if (!right) drop_all(made, 2);
  if (!right) torch.check(false, __func__, "node.c", __LINE__, why);
  for (uint64_t n = 0; n < results; n++) {
    tensor none = NULL;
    if (n != F_QUERIES && n != F_KEYS && n != F_O && n != F_LSE) torch.make_undefined(&none);
    stack[n] = word_of(none);
  }
  stack[F_O] = word_of(made[0]);
  stack[F_LSE] = word_of(made[1]);
}

enum {
  B_DOUT,
  B_Q,
  B_K,
  B_V,
  B_TOKEN,
  B_WANTED,
  B_O,
  B_LSE,
  B_FIRST_UNUSED,
  B_LAST_UNUSED,
  B_SEED = 14,
  B_OFFSET,
  B_SCALE,
  B_DBIAS = 3
};

enum { B_DOUT_OF_RUN = 4 }; /* among the tensors of a backward run */

/* Whether the library reads rows of such a tensor where they lie: _launch.as_input in C. */
static bool is_readable(const struct layout *layout, const int64_t *strides) {
  enum { MULTIPLE = 8 };
  bool readable = layout->dims == DIMS && strides[DIMS - 1] == 1;
  for (int n = 0; readable && n < DIMS - 1; n++)
    readable = layout->sizes[n] == 1 || strides[n] == 0 ||
               (strides[n] >= layout->sizes[DIMS - 1] && strides[n] % MULTIPLE == 0);
  return readable;
}

/* dO as the run wants it: itself, where it is aligned and can be read; else a copy like O. */
static bool fit(const struct pair *pair, tensor dout, int32_t dtype, tensor *copy, char *why) {
  const struct layout *const layout = &pair->layouts[NEW_O];
  int64_t *strides = NULL;
  void *address = NULL;
  if (torch.strides_of(dout, &strides) || torch.address_of(dout, &address))
    return fail(why, "the gradient of O cannot be read");
  const bool fits = pair->backward->places[B_DOUT_OF_RUN].strided
                        ? is_readable(layout, strides)
                        : !memcmp(strides, layout->strides, sizeof layout->strides);
  if (fits && (uintptr_t)address % 16 == 0) return true;
  if (!make(pair->backward, layout, dtype, copy, why)) return false;
  return !torch.copy(*copy, dout, 0) || fail(why, "the gradient of O cannot be copied");
}

static bool run_backward(const tensor *given, tensor *made, char *why) {
  const struct pair *pair;
  int32_t dtype = 0;
  tensor copy = NULL;
  if (!find_pair(given[B_TOKEN], &pair, why)) return false;
  const struct prepared *const prepared = pair->backward;
  bool right = !torch.dtype_of(given[B_Q], &dtype) || fail(why, "a tensor cannot be read");
  right = right && enter_thread(prepared, why) && fit(pair, given[B_DOUT], dtype, &copy, why);
  for (int n = 0; n < 3; n++)
    right = right && make(prepared, &pair->layouts[NEW_DQ + n], dtype, &made[n], why);
  const tensor tensors[] = {
      given[B_Q], given[B_K], given[B_V], given[B_O],   copy ? copy : given[B_DOUT],
      made[0],    made[1],    made[2],    given[B_LSE], NULL};
  right = right && launch_there(prepared, tensors, 10, pair->backward_bytes, why);
  pthread_rwlock_unlock(&known.lock);
  drop_all(&copy, 1);
  return right;
}

/* Of PyTorch's error nobody learns what to do: it names the operator. */
static const char ONCE[] =
    "the backward of fatune's attention is recorded (create_graph=True), and cannot be "
    "differentiated. For "
    "second derivatives call torch.nn.functional.scaled_dot_product_attention under "
    "sdpa_kernel(SDPBackend.MATH), else leave out create_graph=True";

static void serve_backward(uint64_t *stack, uint64_t given, uint64_t results) {
  static const int held[] = {B_DOUT,         B_Q,           B_K,    B_V,     B_TOKEN, B_O, B_LSE,
                             B_FIRST_UNUSED, B_LAST_UNUSED, B_SEED, B_OFFSET};
  char why[TEXT_MOST] = "";
  tensor inputs[B_SCALE] = {0}, made[B_DBIAS + 1] = {0};
  (void)given;
  (void)results;
  if (torch.records()) torch.warn(__func__, "node.c", __LINE__, ONCE);
  open_optional(&stack[B_SCALE]);
  torch.drop_list((void *)(uintptr_t)stack[B_WANTED]);
  for (size_t n = 0; n < sizeof held / sizeof *held; n++)
    inputs[held[n]] = tensor_in(stack[held[n]]);
  const bool right = run_backward(inputs, made, why);
  drop_all(inputs, B_SCALE);
  if (!right) drop_all(made, B_DBIAS);
  if (!right) torch.check(false, __func__, "node.c", __LINE__, why);
  torch.make_undefined(&made[B_DBIAS]);
  for (int n = 0; n <= B_DBIAS; n++) stack[n] = word_of(made[n]);
}

/* ---- serve_torch(address of a function by its name, "CPU" or "CUDA") ---- */

static bool find_function(PyObject *lookup, const char *name, void *pointer) {
  PyObject *const found = PyObject_CallFunction(lookup, "s", name);
  if (!found) return false;
  const uintptr_t address = (uintptr_t)PyLong_AsUnsignedLongLong(found);
  Py_DECREF(found);
  memcpy(pointer, &address, sizeof address);
  return !PyErr_Occurred();
}

/* Makes these kernels the operator's for a kind of device; lookup raises where there is no function
 * of a name. */
PyObject *serve_torch(PyObject *module, PyObject *args) {
  static const char OPERATOR[] = "_scaled_dot_product_fused_attention_overrideable";
  static const char BACKWARD[] = "_scaled_dot_product_fused_attention_overrideable_backward";
  PyObject *lookup;
  const char *kind;
  void *library = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "Os", &lookup, &kind)) return NULL;
#define X(name, symbol, arguments)                                                                 \
  if (!find_function(lookup, #symbol, (void *)&torch.name)) return NULL;
  TORCH_FUNCTIONS(X)
#undef X
  if (!find_function(lookup, "aoti_torch_check", (void *)&torch.check) ||
      !find_function(lookup, "aoti_torch_warn", (void *)&torch.warn) ||
      !find_function(lookup, "aoti_torch_grad_mode_is_enabled", (void *)&torch.records) ||
      !find_function(lookup, "fatune_detail", (void *)&torch.detail))
    return NULL;
  if (torch.library_of("aten", kind, "node.c", __LINE__, &library) ||
      torch.implement(library, OPERATOR, serve_forward) ||
      torch.implement(library, BACKWARD, serve_backward)) {
    PyErr_SetString(PyExc_NotImplementedError, "PyTorch does not take the kernels");
    return NULL;
  }
  return Py_BuildValue("");
}
