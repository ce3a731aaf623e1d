/* binding.h: what the files of the module fatune._binding share. */
#ifndef FATUNE_PYTHON_BINDING_H
#define FATUNE_PYTHON_BINDING_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/fatune.h"

/* ---- DLPack ---- */

enum { ON_CUDA = 2, INTEGER_BITS = 64 };

struct dl_tensor {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct dl_exchange {
  uint32_t major, minor;
  void *previous, *allocate, *from_object, *to_object;
  int (*tensor_of)(void *object, struct dl_tensor *out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
};

/* ---- Exchange(capsule, type, current_device, set_device, torch): how tensors of a type are read
 * ---- */

enum { TENSORS = 3, DIMS = 4 };

/* The words of a tensor in a key: its device, as type << 32 | number, its dtype, sizes, strides. */
enum { DEVICE, DTYPE, SHAPE, STRIDES = SHAPE + DIMS, TENSOR_WORDS = STRIDES + DIMS };

/* What is in torch: empty_like(tensor), is_grad_enabled(), check(status), which raises it, the
 * module forward_ad, and any number of functions that say whether somebody wants to see operators
 * in place of addresses. */
enum { EMPTY_LIKE, IS_GRAD_ENABLED, CHECK, FORWARD_AD, WATCHERS };

/* current_device() and set_device(number) are of the thread; None where there is but one device. */
struct exchange {
  PyObject_HEAD;
  const struct dl_exchange *api;
  PyObject *type, *current_device, *set_device;
  PyObject *torch; /* a tuple; NULL: Python makes each call */
  PyObject *held;  /* the arguments it was made of, these among them */
};

/* ---- Prepared: one kind of run ---- */

enum { ADDRESSES_MOST = 48, CAPTURED_MOST = 24, WORKSPACE_ALIGNMENT = 256 };

/* What a run is given: its arguments, and what its score captures right behind them. */
struct given {
  fatune_arguments arguments;
  fatune_captured captured[CAPTURED_MOST];
};

/* Where the address of a tensor goes, in 64-bit words of struct given; ~word: that of a workspace.
 * Where it has strides of its own in each run, those of batch, sequence and head go behind it; they
 * are of these dimensions. */
struct place {
  Py_ssize_t word;
  bool strided;
  unsigned char dims[DIMS - 1];
};

struct prepared {
  PyObject_HEAD;
  const struct exchange *exchange;
  PyObject *enter; /* enter(device): what a thread does before it launches there first */
  PyObject *held;
  int (*run)(fatune_plan *plan, const fatune_arguments *arguments, void *stream);
  fatune_plan *plan;
  int device; /* -1: an emulated one */
  int seeded; /* a seed and an offset follow the tensors */
  int count;
  struct place places[ADDRESSES_MOST];
  int captured_count;
  struct given given; /* but for addresses */
};

/* Sizes, strides, dtypes and devices of q, k and v, which begin in a tuple there; false: they
 * cannot be read so. */
bool read_key(const struct exchange *exchange, PyObject *tensors, Py_ssize_t first, int64_t *key,
              uint64_t *addresses);

PyObject *new_object(PyTypeObject *type);
void free_object(PyObject *self);
bool is_prepared(PyObject *object);
/* A copy of what each run is given. */
void begin_run(const struct prepared *prepared, struct given *given);
/* Puts an address where the n-th one goes. */
void set_word(const struct prepared *prepared, int n, uint64_t address, struct given *given);
/* Puts the strides of the n-th tensor behind its address, where they are its own. */
void set_strides(const struct prepared *prepared, int n, const int64_t *strides,
                 struct given *given);
/* Both of a tensor, or None. */
bool set_address(const struct prepared *prepared, int n, PyObject *object, struct given *given);
/* Runs on the current stream of the device; false: an error is raised, or there is no stream. */
bool launch_prepared(const struct prepared *prepared, const struct given *given, int *status);
/* What a thread does once before it launches on the device; with the GIL. */
bool enter_once(const struct prepared *prepared);
/* Whether this thread has done so; without the GIL. */
bool has_entered(const struct prepared *prepared);

/* node.c */
extern PyType_Spec pair_spec;
PyObject *serve_torch(PyObject *module, PyObject *args);

/* recent.c */
extern PyType_Spec kind_spec;
PyObject *again(PyObject *exchange, PyObject *args);

#endif
