/* binding.c: the module fatune._binding: what each call of attention() does again, without ctypes.
 * in -> out: tensors that speak DLPack's C exchange API (https://dmlc.github.io/dlpack/latest/) ->
 * the key of what was prepared for tensors like them; its run, with their addresses.
 *
 * It is built against Python's stable ABI of 3.9, links no library and needs no header of PyTorch:
 * what it calls is given to it by address. */
#include "python/binding.h"

#include <string.h>

/* ---- objects ---- */

PyObject *new_object(PyTypeObject *type) {
  return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

void free_object(PyObject *self) {
  PyTypeObject *const type = Py_TYPE(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* ---- Exchange(capsule, type, current_device, set_device, torch): how tensors of a type are read
 * ---- */

static uint64_t address_of(const struct dl_tensor *tensor) {
  return (uintptr_t)tensor->data + tensor->byte_offset;
}

static bool add_to_key(const struct exchange *exchange, PyObject *object, int64_t *key,
                       uint64_t *address) {
  struct dl_tensor tensor;
  if ((PyObject *)Py_TYPE(object) != exchange->type) return false;
  if (exchange->api->tensor_of(object, &tensor)) {
    PyErr_Clear();
    return false;
  }
  if (tensor.ndim != DIMS || !tensor.strides) return false;
  key[DEVICE] = (int64_t)tensor.device_type << 32 | (uint32_t)tensor.device_id;
  key[DTYPE] = (int64_t)tensor.code << 32 | (int64_t)tensor.bits << 16 | tensor.lanes;
  memcpy(key + SHAPE, tensor.shape, DIMS * sizeof *key);
  memcpy(key + STRIDES, tensor.strides, DIMS * sizeof *key);
  *address = address_of(&tensor);
  return true;
}

bool read_key(const struct exchange *exchange, PyObject *tensors, Py_ssize_t first, int64_t *key,
              uint64_t *addresses) {
  if (PyTuple_Size(tensors) < first + TENSORS) return false;
  for (Py_ssize_t n = 0; n < TENSORS; n++)
    if (!add_to_key(exchange, PyTuple_GetItem(tensors, first + n), key + n * TENSOR_WORDS,
                    addresses + n))
      return false;
  return true;
}

/* key(q, k, v) -> bytes that tell their shapes, strides, dtypes and devices, or None. */
static PyObject *exchange_key(PyObject *self, PyObject *args) {
  const struct exchange *const exchange = (struct exchange *)self;
  int64_t key[TENSORS * TENSOR_WORDS];
  uint64_t addresses[TENSORS];
  if (PyTuple_Size(args) != TENSORS) {
    PyErr_SetString(PyExc_TypeError, "key() takes q, k, v");
    return NULL;
  }
  if (!read_key(exchange, args, 0, key, addresses)) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize((const char *)key, sizeof key);
}

static PyObject *exchange_new(PyTypeObject *type, PyObject *args, PyObject *names) {
  PyObject *capsule, *of, *current, *set, *torch = NULL;
  (void)names;
  if (!PyArg_ParseTuple(args, "OOOO|O!", &capsule, &of, &current, &set, &PyTuple_Type, &torch))
    return NULL;
  const struct dl_exchange *const api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!api) return NULL;
  if (api->major != 1 || !api->tensor_of || !api->current_stream) {
    PyErr_SetString(PyExc_NotImplementedError, "DLPack's exchange API is not of version 1, whole");
    return NULL;
  }
  if (torch && PyTuple_Size(torch) < WATCHERS) {
    PyErr_SetString(PyExc_ValueError,
                    "torch has fewer than empty_like, is_grad_enabled, check, forward_ad");
    return NULL;
  }
  struct exchange *const exchange = (struct exchange *)new_object(type);
  if (!exchange) return NULL;
  exchange->api = api;
  exchange->type = of;
  exchange->current_device = current;
  exchange->set_device = set;
  exchange->torch = torch;
  exchange->held = args;
  Py_INCREF(args);
  return (PyObject *)exchange;
}

static void exchange_free(PyObject *self) {
  Py_XDECREF(((struct exchange *)self)->held);
  free_object(self);
}

static bool is_exchange(PyObject *object) {
  PyTypeObject *const type = Py_TYPE(object);
  return (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) &&
         PyType_GetSlot(type, Py_tp_dealloc) == (void *)exchange_free;
}

static PyMethodDef exchange_methods[] = {
    {"key", exchange_key, METH_VARARGS, NULL}, {"again", again, METH_VARARGS, NULL}, {0}};
static PyType_Slot exchange_slots[] = {{Py_tp_new, (void *)exchange_new},
                                       {Py_tp_dealloc, (void *)exchange_free},
                                       {Py_tp_methods, exchange_methods},
                                       {0, NULL}};
static PyType_Spec exchange_spec = {.name = "fatune._binding.Exchange",
                                    .basicsize = sizeof(struct exchange),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = exchange_slots};

/* ---- Prepared: one kind of run ---- */

/* A word of so many, or (word, dimensions of batch, sequence and head). */
static bool read_place(PyObject *from, Py_ssize_t words, struct place *place) {
  int dims[DIMS - 1];
  const bool strided = PyTuple_Check(from);
  if (!strided)
    place->word = PyLong_AsSsize_t(from);
  else if (!PyArg_ParseTuple(from, "niii", &place->word, &dims[0], &dims[1], &dims[2]))
    return false;
  if (place->word == -1 && PyErr_Occurred()) return false;
  const Py_ssize_t first = place->word < 0 ? ~place->word : place->word;
  const Py_ssize_t behind = strided ? DIMS - 1 : 0; /* words there */
  if (first >= words || behind >= words - first || (strided && place->word < 0)) {
    PyErr_Format(PyExc_ValueError, "word %zd lies past the arguments", place->word);
    return false;
  }
  place->strided = strided;
  for (int n = 0; strided && n < DIMS - 1; n++) {
    if (dims[n] < 0 || dims[n] >= DIMS) {
      PyErr_Format(PyExc_ValueError, "dimension %d; allowed: 0 to %d", dims[n], DIMS - 1);
      return false;
    }
    place->dims[n] = (unsigned char)dims[n];
  }
  return true;
}

/* Prepared(exchange, run, plan, plan's address, arguments, captured, words, device, seeded, enter):
 * run is the address of fatune_plan_run; words are the places where addresses of tensors go. The
 * names of what is captured live as long as plan. */
static PyObject *prepared_new(PyTypeObject *type, PyObject *args, PyObject *names) {
  struct prepared given = {0};
  PyObject *exchange, *plan, *words;
  unsigned long long run, address;
  const char *bytes, *captured;
  Py_ssize_t size, captured_size;
  (void)names;
  if (!PyArg_ParseTuple(args, "OKOKy#y#O!ipO", &exchange, &run, &plan, &address, &bytes, &size,
                        &captured, &captured_size, &PyTuple_Type, &words, &given.device,
                        &given.seeded, &given.enter))
    return NULL;
  if (!is_exchange(exchange)) {
    PyErr_SetString(PyExc_TypeError, "the first argument is no Exchange");
    return NULL;
  }
  const Py_ssize_t count = PyTuple_Size(words);
  const Py_ssize_t captured_count = captured_size / (Py_ssize_t)sizeof(fatune_captured);
  if (size != sizeof given.given.arguments || count > ADDRESSES_MOST ||
      captured_size % (Py_ssize_t)sizeof(fatune_captured) != 0 || captured_count > CAPTURED_MOST) {
    PyErr_Format(PyExc_ValueError,
                 "arguments of %zd bytes, captured of %zd bytes, %zd words; allowed: %zu, up to %d "
                 "of %zu, at most %d",
                 size, captured_size, count, sizeof given.given.arguments, CAPTURED_MOST,
                 sizeof(fatune_captured), ADDRESSES_MOST);
    return NULL;
  }
  for (Py_ssize_t n = 0; n < count; n++)
    if (!read_place(PyTuple_GetItem(words, n), (size + captured_size) / (Py_ssize_t)sizeof address,
                    &given.places[n]))
      return NULL;
  struct prepared *const prepared = (struct prepared *)new_object(type);
  if (!prepared) return NULL;
  memcpy(&given.given.arguments, bytes, sizeof given.given.arguments);
  memcpy(given.given.captured, captured, (size_t)captured_size);
  given.ob_base = prepared->ob_base;
  given.exchange = (const struct exchange *)exchange;
  given.run = (int (*)(fatune_plan *, const fatune_arguments *, void *))(uintptr_t)run;
  given.plan = (fatune_plan *)(uintptr_t)address;
  given.count = (int)count;
  given.captured_count = (int)captured_count;
  given.held = args;
  Py_INCREF(args);
  *prepared = given;
  return (PyObject *)prepared;
}

static void prepared_free(PyObject *self) {
  Py_XDECREF(((struct prepared *)self)->held);
  free_object(self);
}

bool is_prepared(PyObject *object) {
  PyTypeObject *const type = Py_TYPE(object);
  return (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) &&
         PyType_GetSlot(type, Py_tp_dealloc) == (void *)prepared_free;
}

void begin_run(const struct prepared *prepared, struct given *given) {
  given->arguments = prepared->given.arguments;
  if (prepared->captured_count == 0) return;
  memcpy(given->captured, prepared->given.captured,
         (size_t)prepared->captured_count * sizeof *given->captured);
  given->arguments.captured = given->captured;
}

static void put_word(struct given *given, Py_ssize_t word, const void *value) {
  memcpy((char *)given + (size_t)word * sizeof(uint64_t), value, sizeof(uint64_t));
}

void set_word(const struct prepared *prepared, int n, uint64_t address, struct given *given) {
  Py_ssize_t word = prepared->places[n].word;
  if (word < 0) {
    word = ~word;
    address = (address + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
  }
  put_word(given, word, &address);
}

void set_strides(const struct prepared *prepared, int n, const int64_t *strides,
                 struct given *given) {
  const struct place *const place = &prepared->places[n];
  if (!place->strided) return;
  for (int dim = 0; dim < DIMS - 1; dim++)
    put_word(given, place->word + 1 + dim, &strides[place->dims[dim]]);
}

static bool read_tensor(const struct prepared *prepared, PyObject *object,
                        struct dl_tensor *tensor) {
  return prepared->exchange->api->tensor_of(object, tensor) == 0;
}

bool set_address(const struct prepared *prepared, int n, PyObject *object, struct given *given) {
  struct dl_tensor tensor;
  uint64_t address = 0;
  if (object != Py_None) {
    if (!read_tensor(prepared, object, &tensor)) return false;
    address = address_of(&tensor);
    if (prepared->places[n].strided) {
      if (tensor.ndim != DIMS || !tensor.strides) {
        PyErr_SetString(PyExc_ValueError, "a tensor has not 4 dimensions");
        return false;
      }
      set_strides(prepared, n, tensor.strides, given);
    }
  }
  set_word(prepared, n, address, given);
  return true;
}

static bool set_number(PyObject *object, uint64_t *number) {
  PyObject *const index = PyNumber_Index(object);
  if (!index) return false;
  *number = PyLong_AsUnsignedLongLongMask(index);
  Py_DECREF(index);
  return !PyErr_Occurred();
}

/* A number, or a tensor of one 64-bit integer that is read when the kernel runs. */
static bool set_seed(const struct prepared *prepared, PyObject *object, uint64_t *number,
                     const uint64_t **device) {
  struct dl_tensor tensor;
  *device = NULL;
  const int is_tensor = PyObject_IsInstance(object, prepared->exchange->type);
  if (is_tensor <= 0) return is_tensor == 0 && set_number(object, number);
  if (!read_tensor(prepared, object, &tensor)) return false;
  const int id = tensor.device_type == ON_CUDA ? tensor.device_id : -1;
  if (id != prepared->device || tensor.bits != INTEGER_BITS) {
    PyErr_SetString(PyExc_TypeError, "a seed or offset is not of 64 bits, or not where q is; "
                                     "allowed: an int, or an int64 tensor on q's device");
    return false;
  }
  *device = (const uint64_t *)(uintptr_t)address_of(&tensor);
  return true;
}

static bool call_with(PyObject *function, int device) {
  PyObject *const result = PyObject_CallFunction(function, "i", device);
  Py_XDECREF(result);
  return result != NULL;
}

static _Thread_local uint64_t entered; /* devices, a bit each */

bool has_entered(const struct prepared *prepared) {
  return prepared->device < 0 ||
         (prepared->device < INTEGER_BITS && entered >> prepared->device & 1);
}

bool enter_once(const struct prepared *prepared) {
  if (has_entered(prepared)) return true;
  if (!call_with(prepared->enter, prepared->device)) return false;
  if (prepared->device < INTEGER_BITS) entered |= UINT64_C(1) << prepared->device;
  return true;
}

/* Makes the device the thread's; *before: which one was, -1 where none need be put back. */
static bool enter(const struct prepared *prepared, int *before) {
  const int device = prepared->device;
  *before = -1;
  if (!enter_once(prepared)) return false;
  if (prepared->exchange->current_device == Py_None) return true;
  PyObject *const current = PyObject_CallObject(prepared->exchange->current_device, NULL);
  if (!current) return false;
  const long number = PyLong_AsLong(current);
  Py_DECREF(current);
  if (number == -1 && PyErr_Occurred()) return false;
  if (number == device) return true;
  *before = (int)number;
  return call_with(prepared->exchange->set_device, device);
}

bool launch_prepared(const struct prepared *prepared, const struct given *given, int *status) {
  void *stream = NULL;
  int before = -1;
  if (prepared->device >= 0) {
    if (!enter(prepared, &before)) return false;
    if (prepared->exchange->api->current_stream(ON_CUDA, prepared->device, &stream)) return false;
  }
  Py_BEGIN_ALLOW_THREADS;
  *status = prepared->run(prepared->plan, &given->arguments, stream);
  Py_END_ALLOW_THREADS;
  return before < 0 || call_with(prepared->exchange->set_device, before);
}

/* run(tensor or None, ..., seed, offset) -> a fatune_status; the last two where it is seeded. */
static PyObject *prepared_run(PyObject *self, PyObject *args) {
  const struct prepared *const prepared = (struct prepared *)self;
  const int count = prepared->count;
  struct given given;
  int status = 0;
  if (PyTuple_Size(args) != count + 2) {
    PyErr_Format(PyExc_TypeError, "run() takes %d tensors, seed, offset", count);
    return NULL;
  }
  begin_run(prepared, &given);
  fatune_arguments *const run = &given.arguments;
  for (int n = 0; n < count; n++)
    if (!set_address(prepared, n, PyTuple_GetItem(args, n), &given)) return NULL;
  if (prepared->seeded &&
      (!set_seed(prepared, PyTuple_GetItem(args, count), &run->seed, &run->seed_device) ||
       !set_seed(prepared, PyTuple_GetItem(args, count + 1), &run->offset, &run->offset_device)))
    return NULL;
  return launch_prepared(prepared, &given, &status) ? PyLong_FromLong(status) : NULL;
}

static PyMethodDef prepared_methods[] = {{"run", prepared_run, METH_VARARGS, NULL}, {0}};
static PyType_Slot prepared_slots[] = {{Py_tp_new, (void *)prepared_new},
                                       {Py_tp_dealloc, (void *)prepared_free},
                                       {Py_tp_methods, prepared_methods},
                                       {0, NULL}};
static PyType_Spec prepared_spec = {.name = "fatune._binding.Prepared",
                                    .basicsize = sizeof(struct prepared),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = prepared_slots};

/* ---- the module ---- */

static int add_types(PyObject *module) {
  PyType_Spec *const specs[] = {&exchange_spec, &prepared_spec, &pair_spec, &kind_spec};
  const char *const names[] = {"Exchange", "Prepared", "Pair", "Kind"};
  for (int n = 0; n < 4; n++) {
    PyObject *const type = PyType_FromSpec(specs[n]);
    if (!type) return -1;
    const int status = PyModule_AddObject(module, names[n], type); /* takes the reference */
    if (status) Py_DECREF(type);
    if (status) return -1;
  }
  return 0;
}

PyMODINIT_FUNC PyInit__binding(void);
PyMODINIT_FUNC PyInit__binding(void) {
  static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_types}, {0, NULL}};
  static PyMethodDef functions[] = {{"serve_torch", serve_torch, METH_VARARGS, NULL}, {0}};
  static PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                   .m_name = "_binding",
                                   .m_methods = functions,
                                   .m_slots = slots};
  return PyModuleDef_Init(&definition);
}
