/* recent.c: calls of attention() whose kind was seen of late, without Python in between.
 * in -> out: a session's Kinds, tensors, what is asked of them -> O, or (O, LSE), launched; None
 * where none of the Kinds fits, and Python makes the call.
 *
 * A Kind has everything that a call depends on but the addresses of its tensors: their sizes,
 * strides, dtypes and devices, and what was asked. Alignment the library checks in each run. */
#include "python/binding.h"

#include <string.h>

/* ---- Kind(prepared, (q, k, v), asked, node, new O, LSE, workspace) ---- */

enum { F_Q, F_O = TENSORS, F_LSE, F_WORKSPACE }; /* addresses of a forward, in their order */

struct kind {
  PyObject_HEAD;
  const struct prepared *prepared;
  PyObject *asked; /* a tuple */
  PyObject *node;  /* node(q, k, v) -> O that autograd knows, or None: by Python; or None */
  PyObject *new_o; /* new_o() -> room for O; None: as empty_like(q) has it */
  PyObject *lse, *workspace; /* what new ones are like; the latter may be None: none is wanted */
  PyObject *held;            /* a tuple of these: q, k and v are not in it */
  int64_t key[TENSORS * TENSOR_WORDS];
};

static PyObject *kind_new(PyTypeObject *type, PyObject *args, PyObject *names) {
  struct kind given = {0};
  PyObject *prepared, *tensors;
  (void)names;
  if (!PyArg_ParseTuple(args, "OO!O!OOOO", &prepared, &PyTuple_Type, &tensors, &PyTuple_Type,
                        &given.asked, &given.node, &given.new_o, &given.lse, &given.workspace))
    return NULL;
  given.prepared = (const struct prepared *)prepared;
  if (!is_prepared(prepared) || given.prepared->seeded ||
      given.prepared->count != F_WORKSPACE + (given.workspace != Py_None)) {
    PyErr_SetString(PyExc_TypeError, "Kind() takes a Prepared of Q, K, V, O, LSE and, if there is "
                                     "one, a workspace, without a seed");
    return NULL;
  }
  if (!given.prepared->exchange->torch) {
    PyErr_SetString(PyExc_NotImplementedError, "the Exchange has no functions of PyTorch");
    return NULL;
  }
  uint64_t addresses[TENSORS];
  if (!read_key(given.prepared->exchange, tensors, 0, given.key, addresses)) {
    PyErr_SetString(PyExc_TypeError, "q, k, v are not three tensors of the Exchange's type");
    return NULL;
  }
  given.held =
      PyTuple_Pack(6, prepared, given.asked, given.node, given.new_o, given.lse, given.workspace);
  struct kind *const kind = given.held ? (struct kind *)new_object(type) : NULL;
  if (!kind) {
    Py_XDECREF(given.held);
    return NULL;
  }
  given.ob_base = kind->ob_base;
  *kind = given;
  return (PyObject *)kind;
}

static void kind_free(PyObject *self) {
  Py_XDECREF(((struct kind *)self)->held);
  free_object(self);
}

static bool is_kind(PyObject *object) {
  PyTypeObject *const type = Py_TYPE(object);
  return (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) &&
         PyType_GetSlot(type, Py_tp_dealloc) == (void *)kind_free;
}

static PyType_Slot kind_slots[] = {
    {Py_tp_new, (void *)kind_new}, {Py_tp_dealloc, (void *)kind_free}, {0, NULL}};
PyType_Spec kind_spec = {.name = "fatune._binding.Kind",
                         .basicsize = sizeof(struct kind),
                         .flags = Py_TPFLAGS_DEFAULT,
                         .slots = kind_slots};

/* ---- which Kind a call is of; after an error it is none, and Python makes the call and says what
 * is wrong ---- */

static bool is_number(PyObject *object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object);
}

static bool is_text(PyObject *object) {
  return PyUnicode_CheckExact(object);
}

/* The same object, or equal numbers, texts or tuples of them, whose comparison runs nobody's code.
 */
static bool same(PyObject *a, PyObject *b) {
  if (a == b) return true;
  if ((is_number(a) && is_number(b)) || (is_text(a) && is_text(b)))
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (!PyTuple_CheckExact(a) || !PyTuple_CheckExact(b)) return false;
  const Py_ssize_t size = PyTuple_Size(a);
  bool equal = PyTuple_Size(b) == size;
  for (Py_ssize_t n = 0; equal && n < size; n++)
    equal = same(PyTuple_GetItem(a, n), PyTuple_GetItem(b, n));
  return equal;
}

static PyObject *attribute(PyObject *object, const char *text, PyObject **name) {
  if (!*name) *name = PyUnicode_InternFromString(text);
  return *name ? PyObject_GetAttr(object, *name) : NULL;
}

/* The session's Kinds, a tuple that is not empty, or NULL. If no session was given, it is the one
 * found for q's device, whose number is a word of q's key. */
static PyObject *kinds_of(PyObject *found, PyObject *session, int64_t device) {
  static PyObject *of_session;
  if (session == Py_None) {
    PyObject *const number = PyLong_FromLongLong(device);
    session = number ? PyDict_GetItemWithError(found, number) : NULL;
    Py_XDECREF(number);
  }
  if (!session || session == Py_None) return NULL;
  Py_INCREF(session);
  PyObject *const kinds = attribute(session, "recent", &of_session);
  Py_DECREF(session);
  if (kinds && PyTuple_CheckExact(kinds) && PyTuple_Size(kinds) > 0 &&
      is_kind(PyTuple_GetItem(kinds, 0)))
    return kinds;
  Py_XDECREF(kinds);
  return NULL;
}

/* 1, 0, or -1: failed. */
static int holds(PyObject *function) {
  PyObject *const told = PyObject_CallObject(function, NULL);
  const int truth = told ? PyObject_IsTrue(told) : -1;
  Py_XDECREF(told);
  return truth;
}

static bool is_learnt(PyObject *tensor) {
  static PyObject *name;
  PyObject *const told = attribute(tensor, "requires_grad", &name);
  const bool learnt = told != Py_False;
  Py_XDECREF(told);
  return learnt;
}

/* Whether tensors may have tangents, of forward-mode differentiation; or nobody can tell. */
static bool has_tangents(PyObject *forward_ad) {
  static PyObject *name;
  PyObject *const told = attribute(forward_ad, "_current_level", &name);
  const long level = told ? PyLong_AsLong(told) : 0;
  Py_XDECREF(told);
  return level >= 0 || PyErr_Occurred();
}

enum use { PLAIN, LEARNT, SEEN };

/* Whether gradients are wanted, or somebody wants to see operators in place of addresses. */
static enum use use_of(PyObject *torch, PyObject *args, Py_ssize_t first) {
  const Py_ssize_t functions = PyTuple_Size(torch);
  enum use use = PLAIN;
  if (has_tangents(PyTuple_GetItem(torch, FORWARD_AD))) return SEEN;
  const int records = holds(PyTuple_GetItem(torch, IS_GRAD_ENABLED));
  for (int n = 0; records == 1 && use == PLAIN && n < TENSORS; n++)
    if (is_learnt(PyTuple_GetItem(args, first + n))) use = LEARNT;
  for (Py_ssize_t n = WATCHERS; n < functions; n++)
    if (holds(PyTuple_GetItem(torch, n)) != 0) return SEEN;
  return records >= 0 ? use : SEEN;
}

/* Whether the arguments from the first on are those that a kind was asked. */
static bool was_asked(const struct kind *kind, PyObject *args, Py_ssize_t first) {
  const Py_ssize_t count = PyTuple_Size(kind->asked);
  bool equal = PyTuple_Size(args) == first + count;
  for (Py_ssize_t n = 0; equal && n < count; n++)
    equal = same(PyTuple_GetItem(kind->asked, n), PyTuple_GetItem(args, first + n));
  return equal;
}

/* The first of the Kinds from the n-th on of which that was asked, or NULL. */
static struct kind *find(PyObject *kinds, Py_ssize_t *n, PyObject *args, Py_ssize_t first) {
  PyTypeObject *const type = Py_TYPE(PyTuple_GetItem(kinds, 0));
  const Py_ssize_t count = PyTuple_Size(kinds);
  for (; *n < count; ++*n) {
    PyObject *const object = PyTuple_GetItem(kinds, *n);
    if (Py_TYPE(object) == type && was_asked((struct kind *)object, args, first))
      return (struct kind *)object;
  }
  return NULL;
}

/* ---- its run; an error is raised ---- */

static PyObject *new_like(const struct kind *kind, PyObject *tensor) {
  PyObject *const empty_like = PyTuple_GetItem(kind->prepared->exchange->torch, EMPTY_LIKE);
  return PyObject_CallFunctionObjArgs(empty_like, tensor, NULL);
}

/* Raises what a status says. */
static bool fail(const struct kind *kind, int status) {
  PyObject *const check = PyTuple_GetItem(kind->prepared->exchange->torch, CHECK);
  PyObject *const result = PyObject_CallFunction(check, "i", status);
  Py_XDECREF(result);
  if (result) PyErr_SetString(PyExc_RuntimeError, "a run failed, and no error was raised");
  return false;
}

static bool run(const struct kind *kind, const uint64_t *addresses, PyObject *out, PyObject *lse,
                PyObject *workspace) {
  const struct prepared *const prepared = kind->prepared;
  struct given given;
  int status = 0;
  begin_run(prepared, &given);
  for (int n = 0; n < TENSORS; n++) set_word(prepared, F_Q + n, addresses[n], &given);
  if (!set_address(prepared, F_O, out, &given) || !set_address(prepared, F_LSE, lse, &given) ||
      (workspace && !set_address(prepared, F_WORKSPACE, workspace, &given)) ||
      !launch_prepared(prepared, &given, &status)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a tensor or stream cannot be read");
    return false;
  }
  return status == 0 || fail(kind, status);
}

static PyObject *make(const struct kind *kind, PyObject *q, const uint64_t *addresses,
                      bool wants_lse) {
  const bool like_q = kind->new_o == Py_None, needs_workspace = kind->workspace != Py_None;
  PyObject *out = like_q ? new_like(kind, q) : PyObject_CallObject(kind->new_o, NULL);
  PyObject *const lse = out && wants_lse ? new_like(kind, kind->lse) : NULL;
  PyObject *const workspace = out && needs_workspace ? new_like(kind, kind->workspace) : NULL;
  bool made = out && (lse || !wants_lse) && (workspace || !needs_workspace);
  made = made && run(kind, addresses, out, lse ? lse : Py_None, workspace);
  PyObject *const result = !made ? NULL : wants_lse ? PyTuple_Pack(2, out, lse) : out;
  if (result == out) out = NULL; /* nothing, or given away */
  Py_XDECREF(out);
  Py_XDECREF(lse);
  Py_XDECREF(workspace);
  return result;
}

/* ---- exchange.again(found, session, return_lse, q, k, v, what is asked ...) ---- */

enum { FOUND, SESSION, RETURN_LSE, Q, ASKED = Q + TENSORS };

/* The Kind that the call is of, and what its tensors are used for; the reference is the caller's.
 * NULL: there is none, or Python makes the call. */
static struct kind *kind_of(const struct exchange *exchange, PyObject *args, uint64_t *addresses,
                            enum use *use) {
  int64_t key[TENSORS * TENSOR_WORDS];
  Py_ssize_t n = 0;
  if (!exchange->torch || !read_key(exchange, args, Q, key, addresses)) return NULL;
  PyObject *const kinds =
      kinds_of(PyTuple_GetItem(args, FOUND), PyTuple_GetItem(args, SESSION), key[DEVICE]);
  if (!kinds) return NULL;
  struct kind *kind = find(kinds, &n, args, ASKED);
  while (kind && memcmp(kind->key, key, sizeof key) != 0) {
    ++n;
    kind = find(kinds, &n, args, ASKED);
  }
  *use = kind ? use_of(exchange->torch, args, Q) : SEEN;
  if (*use == SEEN) kind = NULL;
  Py_XINCREF((PyObject *)kind);
  Py_DECREF(kinds);
  return kind;
}

/* O, made by the kind's autograd node. None: there is no such node, or it failed; then Python makes
 * the call, and raises what is wrong. */
static PyObject *differentiable(const struct kind *kind, PyObject *args, bool wants_lse) {
  if (wants_lse || kind->node == Py_None) Py_RETURN_NONE;
  PyObject *const out = PyObject_CallFunctionObjArgs(kind->node, PyTuple_GetItem(args, Q),
                                                     PyTuple_GetItem(args, Q + 1),
                                                     PyTuple_GetItem(args, Q + 2), NULL);
  if (out || !PyErr_ExceptionMatches(PyExc_RuntimeError)) return out;
  PyErr_Clear();
  Py_RETURN_NONE;
}

PyObject *again(PyObject *exchange, PyObject *args) {
  uint64_t addresses[TENSORS];
  enum use use = SEEN;
  if (PyTuple_Size(args) < ASKED || !PyDict_Check(PyTuple_GetItem(args, FOUND))) {
    PyErr_SetString(PyExc_TypeError,
                    "again() takes a dict, session, return_lse, q, k, v, what is asked of them");
    return NULL;
  }
  const int wants_lse = PyObject_IsTrue(PyTuple_GetItem(args, RETURN_LSE));
  struct kind *const kind =
      wants_lse < 0 ? NULL : kind_of((struct exchange *)exchange, args, addresses, &use);
  if (!kind) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  PyObject *const result = use == LEARNT
                               ? differentiable(kind, args, wants_lse)
                               : make(kind, PyTuple_GetItem(args, Q), addresses, wants_lse);
  Py_DECREF((PyObject *)kind);
  return result;
}
