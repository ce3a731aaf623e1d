/* fatune.h: the public interface of fatune, a compiler and tuner of exact attention kernels.
 *
 *     O = softmax(scale * Q K^T + mask) V            LSE_i = log sum_j exp(scale * q_i . k_j)
 *
 * (mask is 0 where key j is visible to query i, -inf elsewhere; the sum of LSE is over visible
 * keys.) The algorithm is FlashAttention (Dao et al., arXiv 2205.14135; Dao, arXiv 2307.08691):
 * nothing of size seqlen_q x seqlen_k is stored. The backward makes P = exp(scale * Q K^T - LSE):
 *
 *     dV = P^T dO               dS = P o (dO V^T - rowsum(dO o O) + dLSE)
 *     dQ = scale * dS K         dK = scale * dS^T Q
 *
 * A session holds the templates, the caches and, where there is one, the GPU. A plan is one
 * request made ready: config looked up, kernel fetched or compiled, loaded. Running it launches.
 *
 *     fatune_session_open(&session, NULL);
 *     fatune_plan_make(&plan, session, &request);
 *     fatune_plan_run(plan, &arguments, stream);
 *     fatune_plan_free(plan); fatune_session_close(session);
 *
 * Conventions, for every function:
 *  - returns FATUNE_OK (0) or a negative fatune_status; fatune_detail() then explains it, naming
 *    the argument, its value and what is allowed. Nothing is printed, no signal handler is set,
 *    nothing exits.
 *  - out-parameters come first and are set to NULL on failure. *_free and *_close accept NULL.
 *  - option structs begin with their size; start from the FATUNE_..._INIT value (in C++ from C++11
 *    on). A field left 0 means its default. Later versions add fields at the end. A caller that was
 *    built with an older, smaller struct is served: the fields it lacks have the INIT value. A
 *    larger struct is served where all that this version does not know is 0. Any other size is
 *    FATUNE_E_ARGUMENT.
 *  - strings and structs passed in are copied; strings handed out say until when they live.
 *  - a session, its plans and its masks may be used by many threads at once. Closing and freeing
 *    is done by one thread, when no other uses the object. After fork() the child must not use
 *    them. More on threads: runtime/README.md.
 *  - a plan or mask keeps its session's address: free it before the session is closed.
 *  - dtypes, layouts: Q, K, V, O are of the request's dtype in device memory, [batch, sequence,
 *    head, dim] in any order of strides, the last dimension contiguous, every row 16-byte aligned.
 *    Sizes and strides are in elements, offsets 64-bit.
 *  - FATUNE_E_MEMORY may come from any function that makes something and is not repeated below. */
#ifndef FATUNE_H
#define FATUNE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FATUNE_VERSION_MAJOR 0
#define FATUNE_VERSION_MINOR 2

#if defined(__GNUC__)
#define FATUNE_API __attribute__((visibility("default")))
#else
#define FATUNE_API
#endif

/* A struct's INIT value: its size, the fields named by FATUNE_WITH_, and 0 elsewhere. In C an
 * initialiser, in C++ an expression. */
#ifdef __cplusplus
#define FATUNE_WITH_(field, value) made.field = value;
#define FATUNE_INIT_(type, fields)                                                                 \
  []() -> type {                                                                                   \
    type made = type();                                                                            \
    made.size = sizeof made;                                                                       \
    fields return made;                                                                            \
  }()
#else
#define FATUNE_WITH_(field, value) , .field = value
#define FATUNE_INIT_(type, fields)                                                                 \
  { .size = sizeof(type) fields }
#endif

/* ---- status -------------------------------------------------------------------------- */

/* ORDER STATUS: the same as enum ft_status inside. */
typedef enum fatune_status {
  FATUNE_OK = 0,
  FATUNE_E_ARGUMENT = -1,      /* an argument is outside what is allowed */
  FATUNE_E_UNSUPPORTED = -2,   /* a sound request; no kernel serves it on this GPU */
  FATUNE_E_MEMORY = -3,        /* host or device memory ran out */
  FATUNE_E_TEMPLATE = -4,      /* a template is broken */
  FATUNE_E_NO_DRIVER = -5,     /* no CUDA driver, or no GPU */
  FATUNE_E_NO_NVRTC = -6,      /* no NVRTC, nor a compiled kernel to do without */
  FATUNE_E_COMPILE = -7,       /* NVRTC refused a kernel */
  FATUNE_E_DEVICE = -8,        /* the CUDA driver reported an error */
  FATUNE_E_CACHE = -9,         /* a cache file failed where using it was the task */
  FATUNE_E_NOT_FOUND = -10,    /* what was asked for by name is not there */
  FATUNE_E_NOT_PREPARED = -11, /* would compile or load in a stream capture */
  FATUNE_E_WRONG = -12,        /* a kernel's result failed verification */
  FATUNE_E_IO = -13,           /* a file could not be read or written */
  FATUNE_E_INTERRUPTED = -14,  /* stopped on request; what is done is kept */
  FATUNE_E_NO_CXX = -15        /* no C++ compiler, which the emulator needs */
} fatune_status;

FATUNE_API const char *fatune_status_text(int status); /* a fixed sentence; never NULL or freed */
/* What went wrong in this thread's last failed call. Valid until the thread's next failure. */
FATUNE_API const char *fatune_detail(void);
FATUNE_API const char *fatune_version(void); /* "0.2.0" */

/* ---- session ------------------------------------------------------------------------- */

typedef struct fatune_session fatune_session;

typedef struct fatune_session_options {
  size_t size; /* sizeof(fatune_session_options) */
  int device;  /* 1 + CUDA ordinal; 0: the GPU of the thread's current context, else the first */
  const char *cache_dir; /* of both caches; NULL: $FATUNE_CACHE_DIR, else the XDG folders */
  /* ':'-separated folders with shipped caches; NULL: $FATUNE_SYSTEM_PATH. The folder `fatune`
     beside the library is always searched, last. */
  const char *system_path;
  const char *template_dir; /* for development; NULL: $FATUNE_TEMPLATE_DIR, else those built in */
  int memory_only;          /* 1: no cache file is read or written */
  int compile;              /* 0: compile what is in no cache; -1: never (FATUNE_E_NO_NVRTC) */
  /* Warnings, one line each; NULL: dropped. Called from any thread that is inside a fatune call. */
  void (*log)(void *payload, const char *message);
  void *payload;
  /* The name of a GPU (`fatune gpus`; "a100") that this session emulates on the CPU instead of
     using one; NULL: none. Device memory is then the process's own memory, each call returns when
     all is done, and a kernel's fault (an access outside the tensors, a race, a barrier some
     threads miss ...) is FATUNE_E_DEVICE of its run with the place. Runs need no current context
     and no stream (NULL). For checking, not for speed: nothing is ever timed, fatune_tune predicts.
     Needs a C++ compiler ($FATUNE_CXX, g++, clang++) when a plan is made, else FATUNE_E_NO_CXX. */
  const char *emulate;
} fatune_session_options;

#define FATUNE_SESSION_OPTIONS_INIT FATUNE_INIT_(fatune_session_options, )

/* Opens the caches, the templates and, if present, the driver (libcuda.so.1, or $FATUNE_LIBCUDA)
 * and the GPU; what needs a GPU then fails with FATUNE_E_NO_DRIVER and the reason. options NULL:
 * all defaults. NVRTC is opened at the first compile. The context used is the one current in the
 * calling thread where it is of this GPU (it must outlive the session), else the GPU's primary
 * context, retained until close; no context is left current that was not. A cache that cannot be
 * used is a line to `log` and no error. FATUNE_E_ARGUMENT for an option or a GPU number out of
 * range, FATUNE_E_TEMPLATE or _IO for template_dir. */
FATUNE_API int fatune_session_open(fatune_session **session, const fatune_session_options *options);
/* Frees everything but plans and masks, which must have been freed before. NULL is allowed. */
FATUNE_API void fatune_session_close(fatune_session *session);

/* ---- request ------------------------------------------------------------------------- */

typedef enum fatune_pass { FATUNE_FORWARD, FATUNE_BACKWARD } fatune_pass;
/* E4M3: Q, K, V are 8-bit floats (OCP E4M3, PyTorch's float8_e4m3fn), O is bf16 or fp16; forwards
 * alone, without dropout, from sm_89 on, head dims multiples of 16. FP32, TF32: all tensors are
 * fp32, from sm_80 on; TF32 is faster, and rounds what it multiplies. */
typedef enum { FATUNE_FP16, FATUNE_BF16, FATUNE_E4M3, FATUNE_FP32, FATUNE_TF32 } fatune_dtype;
/* Of O. The default is that of Q, or with E4M3 bf16. FP16 is for E4M3; FP32 for dtypes of 16 bits,
 * and in a backward for dQ, dK and dV. */
typedef enum { FATUNE_O_DEFAULT, FATUNE_O_FP16, FATUNE_O_FP32 } fatune_dtype_o;
typedef enum { FATUNE_KV_DEFAULT, FATUNE_KV_E4M3 } fatune_dtype_kv; /* of fp16, bf16: sm_80 on */
/* Which keys j query i sees. */
typedef enum fatune_causal {
  FATUNE_CAUSAL_NONE,
  FATUNE_CAUSAL_BOTTOM_RIGHT, /* j <= i + nk - nq, as in FlashAttention since 2.1 */
  FATUNE_CAUSAL_TOP_LEFT      /* j <= i, as in PyTorch's is_causal */
} fatune_causal;
/* Which keys j query i sees in a sliding window of `left` keys before its own and `right` after. */
typedef enum fatune_window {
  FATUNE_WINDOW_NONE,
  FATUNE_WINDOW_BOTTOM_RIGHT, /* i + nk - nq - left <= j <= i + nk - nq + right */
  FATUNE_WINDOW_TOP_LEFT      /* i - left <= j <= i + right */
} fatune_window;

/* What a kernel is specialised for (first group) and what its config is chosen for (second group;
 * those of a run may differ, one plan serves all, at best speed those of the same power of two). */
typedef struct fatune_request {
  size_t size;        /* sizeof(fatune_request) */
  fatune_pass pass;   /* FATUNE_FORWARD */
  fatune_dtype dtype; /* of Q, K, V, and of O but for FATUNE_E4M3. Softmax is fp32 */
  int head_dim;       /* of Q and K: 16..256, a multiple of 8 */
  int head_dim_v;     /* of V and O, likewise; 0: head_dim */
  fatune_causal causal;
  int dropout; /* 1: the plan applies dropout; its probability is an argument of the run */
  int mask_rows, mask_cols; /* of a block of a block-sparse mask, multiples of 16; 0: no mask */
  int deterministic;        /* backward only; the forward always is */

  int64_t batch;        /* 0: 1 */
  int heads_q;          /* 0: heads_kv, or 1; a multiple of heads_kv (MHA, GQA, MQA) */
  int heads_kv;         /* 0: heads_q */
  int64_t seqlen_q;     /* 1 .. 2^31 - 1; of a run with a score, and of its keys, at most 2^23 */
  int64_t seqlen_k;     /* 0: seqlen_q */
  double mask_density;  /* expected share of kept blocks, (0, 1]; 0: 1 */
  fatune_window window; /* of the first group; its sides are arguments of the run */
  int64_t window_left, window_right; /* of the second: keys before and after its own; -1: all */
  /* Of the first group. fatune_score_add's; 0: none. Then, of a backward, the sum of
   * fatune_score_gradient's for what is captured and wants a gradient. */
  int64_t score, score_gradients;
  int sinks; /* 1: each row's normaliser has a logit of its query head besides those of its keys */
  int64_t ragged; /* of the first group. 1: sequences of different lengths; seqlen_*: of all */
  /* Of the first group. K and V in pages of so many rows, a power of two; no block mask. */
  int64_t pages;             /* of a forward; 0: they are not */
  int64_t dtype_o, dtype_kv; /* of the first group: a fatune_dtype_o, a fatune_dtype_kv */
  int64_t descale_rows; /* of the first group: of a fatune_descale: 64, 128; 0: all of a head */
  int64_t mask_longest; /* of the second group: as fatune_mask_longest says; 0: 1 */
  int64_t fast_exp; /* of the first group. 1: P of E4M3 errs by 3.2 %, not 2.7; faster, no LSE */
} fatune_request;

#define FATUNE_REQUEST_INIT                                                                        \
  FATUNE_INIT_(fatune_request, FATUNE_WITH_(pass, FATUNE_FORWARD) FATUNE_WITH_(dtype, FATUNE_BF16) \
                                   FATUNE_WITH_(window_left, -1) FATUNE_WITH_(window_right, -1)    \
                                       FATUNE_WITH_(mask_longest, 1))

/* Fills a request, which holds its size (FATUNE_REQUEST_INIT), from its text, e.g. "forward bf16
 * d128 hq32 hkv8 b2 nq4096 causal". Words in any order, each once:
 *     forward|backward fp16|bf16|e4m3|fp32|tf32 o=fp16|fp32 kv=e4m3 dN dvN hqN hkvN bN nqN nkN
 *     ragged pages=N descales=N fast_exp sinks causal[=bottom-right|top-left] dropout deterministic
 *     window[=bottom-right|top-left][@LEFT,RIGHT] score=DIGEST[+GRADIENTS]
 *     mask=ROWSxCOLS[@DENSITY[,LONGEST]]
 * dN and nqN are required. FATUNE_E_ARGUMENT names the word, or says that the request's size has no
 * room for what the text asks. On failure the request has the INIT value, but for a wrong size. */
FATUNE_API int fatune_request_parse(fatune_request *request, const char *text);
/* Fills `bucket`, which holds its size (FATUNE_REQUEST_INIT), with the request that stands for all
 * those that a config is chosen for at once: sizes are rounded to powers of two, what a kernel is
 * specialised for is kept. Requests may share a plan at its best speed where the bytes of their
 * buckets are the same. Errors are those of fatune_plan_make for the request. */
FATUNE_API int fatune_request_bucket(fatune_request *bucket, const fatune_request *request);

/* ---- score functions ----------------------------------------------------------------- */

/* Makes a score function known to the session: what is made of scale * q . k before the softmax,
 * and which keys are visible. Gives the number that requests name it by (fatune_request.score);
 * equal functions have equal numbers. `text` is Lua (generator/score/README.md), of which `name`
 * stands in messages; NULL: the built-in function of that name. FATUNE_E_ARGUMENT with name and
 * line where the text is wrong, FATUNE_E_NOT_FOUND for a name that is not built in. */
FATUNE_API int fatune_score_add(int64_t *score, fatune_session *session, const char *name,
                                const char *text);
/* Gives the bit of fatune_request.score_gradients for the gradient of the captured tensor or scalar
 * `name`. FATUNE_E_ARGUMENT if none of this name is captured, or there is no derivative by it. */
FATUNE_API int fatune_score_gradient(int64_t *gradient, fatune_session *session, int64_t score,
                                     const char *name);
/* Gives what the text says of the elements of the captured tensor `name`: "fp32", "fp16", "bf16",
 * "int32", "int64", "uint8", "bool", never freed. FATUNE_E_ARGUMENT if there is no such tensor. */
FATUNE_API int fatune_score_dtype(const char **dtype, fatune_session *session, int64_t score,
                                  const char *name);

/* What a score function captures: a scalar's value, or a tensor. */
typedef struct fatune_captured {
  const char *name;   /* as in the text */
  double value;       /* of a scalar */
  const void *data;   /* of a tensor: device address, a multiple of its element's size; else NULL */
  int64_t extents[4]; /* at least those of the text; 1 .. 2^31 - 1; beyond its indices 0 or 1 */
  int64_t strides[4]; /* in elements, at least 0; 0 to broadcast */
  /* Written by a backward whose request wants it, else NULL there. A forward does not look at it.
   * Dense, in the order of the extents, with one element along a dimension of stride 0: the sum
   * over those that share it; of a scalar one element. If the request is deterministic, a
   * contribution that is not finite, or as large as 2^38, makes all of it NaN. */
  float *gradient;
} fatune_captured;

/* ---- block-sparse mask --------------------------------------------------------------- */

typedef struct fatune_mask fatune_mask;

typedef struct fatune_mask_options {
  size_t size; /* sizeof(fatune_mask_options) */
  /* [batch, heads, ceil(seqlen_q / mask_rows), ceil(seqlen_k / mask_cols)], dense, row-major;
     non-zero: keep. Host memory, or device memory where on_device is 1. */
  const uint8_t *blocks;
  int on_device;
  int mask_rows, mask_cols;   /* size of one block, as in the request */
  int64_t batch;              /* 1: the same for every batch */
  int heads;                  /* query heads; 1: the same for every head */
  int64_t seqlen_q, seqlen_k; /* in elements; a run's lengths must be these */
} fatune_mask_options;

#define FATUNE_MASK_OPTIONS_INIT FATUNE_INIT_(fatune_mask_options, )

/* Turns a bitmap into index lists on the device, once; the mask is then used by any number of
 * runs, at once if need be. Copies blocks and waits for `stream` (a CUstream of the session's GPU;
 * NULL: the default stream): blocks written on that stream before are seen. Device memory: 16 bytes
 * for each row and each column of blocks, 8 for each kept block. Blocks that are off are never
 * loaded. FATUNE_E_ARGUMENT names the option; FATUNE_E_NO_DRIVER without a GPU;
 * FATUNE_E_NOT_PREPARED while `stream` is being captured; FATUNE_E_DEVICE. */
FATUNE_API int fatune_mask_make(fatune_mask **mask, fatune_session *session,
                                const fatune_mask_options *options, void *stream);
/* A mask that the mask function of a score makes: a block is kept where some query of it sees some
 * key of it. A run with such a mask needs a plan whose request has the same score, whose mask
 * function is then evaluated only in blocks that are seen in part. */
typedef struct fatune_visible_options {
  size_t size;              /* sizeof(fatune_visible_options) */
  int64_t score;            /* fatune_score_add's, of a score that has a mask function */
  int mask_rows, mask_cols; /* size of one block, as in the request */
  int64_t batch;            /* of the runs; 0: 1, as below */
  int heads_q, heads_kv;
  int64_t seqlen_q, seqlen_k; /* a run's lengths must be these */
  /* 1: all batch entries, or all heads, see what entry 0, or head 0, sees, and share its lists.
     Where the function does not read b, or h and kv, they share lists without being told. */
  int same_for_batch, same_for_heads;
  /* fatune_visible_memory_size bytes of device memory for the lists, 256-byte aligned, which the
     caller keeps until the mask is freed; NULL: the mask allocates it. */
  void *memory;
} fatune_visible_options;

#define FATUNE_VISIBLE_OPTIONS_INIT FATUNE_INIT_(fatune_visible_options, )

/* For each set of lists about 9 bytes a block, and 20 and 8 for each value that the function takes
 * of a query or key, for each row and column of blocks. Errors as fatune_visible_mask. */
FATUNE_API int fatune_visible_memory_size(fatune_session *session,
                                          const fatune_visible_options *options, size_t *bytes);
/* Makes ready a mask that fatune_mask_update fills; before that no run may use it. Compiles and
 * loads kernels when the session first needs them (FATUNE_E_NOT_PREPARED in a capture); launches
 * nothing. FATUNE_E_ARGUMENT names the option; else as fatune_plan_make. */
FATUNE_API int fatune_visible_mask(fatune_mask **mask, fatune_session *session,
                                   const fatune_visible_options *options);
/* Makes the lists from what the function captures, anew at each call: launches four kernels on
 * `stream` and returns, with the promises of fatune_plan_run, so that a captured graph makes them
 * at each replay. No run may use the mask at the same time. captured: as in fatune_arguments.
 * FATUNE_E_ARGUMENT where something of it is missing or too small, or the mask has a bitmap. */
FATUNE_API int fatune_mask_update(fatune_mask *mask, const fatune_captured *captured,
                                  int captured_count, void *stream);

/* Queries from query_begin to query_end - 1 see keys from key_begin to key_end - 1. If causal,
 * query query_end - 1 - n does not see the last n of these keys. */
typedef struct fatune_rectangle {
  int64_t query_begin, query_end, key_begin, key_end;
  int causal;
} fatune_rectangle;

/* Fills in `bounds`, [seqlen_q, 8] in host memory, for the built-in score function `rectangles`: a
 * query sees a key if one of the rectangles lets it. FATUNE_E_ARGUMENT names a wrong rectangle, or
 * a query whose keys are more than four separate ranges. */
FATUNE_API int fatune_rectangle_bounds(int32_t *bounds, int64_t seqlen_q, int64_t seqlen_k,
                                       const fatune_rectangle *rectangles, int count);

/* Share of kept blocks, 0 .. 1; 0 for NULL; -1, not known, where a mask function makes the mask. */
FATUNE_API double fatune_mask_density(const fatune_mask *mask);
/* How many times as many blocks the longest row of blocks keeps as the mean row, for a backward the
 * longest column, rounded down: for mask_longest. 1 for NULL, and where it is not known. */
FATUNE_API int64_t fatune_mask_longest(const fatune_mask *mask, fatune_pass pass);
FATUNE_API void fatune_mask_free(fatune_mask *mask); /* when no run uses it any more; or NULL */

/* ---- plan ---------------------------------------------------------------------------- */

typedef struct fatune_plan fatune_plan;

/* Looks the config up (exact, near, shipped, model, else the default; never measures), fetches the
 * kernel from the caches or compiles it (some tenths of a second), and loads it. A cached kernel
 * that the driver refuses is compiled anew, with one line to `log`. FATUNE_E_NO_DRIVER without a
 * GPU; FATUNE_E_ARGUMENT names the field of the request; FATUNE_E_UNSUPPORTED where no kernel
 * serves it on this GPU; FATUNE_E_NO_NVRTC where it has to be compiled and cannot be;
 * FATUNE_E_COMPILE, _TEMPLATE, _DEVICE; FATUNE_E_NOT_PREPARED while a stream is being captured that
 * the default stream waits for: make plans before the capture.
 *
 * Equal requests share one plan, and each fatune_plan_make wants a fatune_plan_free. The session
 * keeps the last 32 plans loaded: to make one of them again takes less than a microsecond and is
 * allowed in a capture. It drops them when fatune_tune has stored a trial, and within 0.1 s when
 * another process has written to tuning.db. A plan that was dropped stays usable until freed. */
FATUNE_API int fatune_plan_make(fatune_plan **plan, fatune_session *session,
                                const fatune_request *request);
/* The same with a config given as text ("mma_forward block_m=128 ..."), for experiments. One that
 * breaks a rule is FATUNE_E_ARGUMENT with the rule's name. */
FATUNE_API int fatune_plan_make_with(fatune_plan **plan, fatune_session *session,
                                     const fatune_request *request, const char *config);
FATUNE_API void fatune_plan_free(fatune_plan *plan); /* when no run of it is under way; or NULL */
/* Where the config came from ("exact: ...", "near: ..." and so on, or "given"), and after a ';'
 * whether the kernel came from a cache or the compiler. Lives as long as the plan. NULL: "". */
FATUNE_API const char *fatune_plan_origin(const fatune_plan *plan);
/* The config's text and the emitted CUDA C, likewise. The latter of a cached kernel is emitted when
 * it is first asked for; "" where that fails, and fatune_detail says why. */
FATUNE_API const char *fatune_plan_config(const fatune_plan *plan);
FATUNE_API const char *fatune_plan_source(const fatune_plan *plan);

/* Bytes of arguments.workspace, for runs of the request's batch, heads and lengths. None grows with
 * seqlen_q times seqlen_k. A forward takes none; with split_keys in its config O and LSE in fp32 of
 * at most 4 parts of a tile's rows for each block that the GPU runs at once, with skip_far 32 for
 * each head of Q and K; without a workspace it does neither. With v_by_columns it takes what V
 * does, in whole steps. A ragged forward takes 512, and 32 for each of (rows of Q / rows of a tile
 * + sequences); with split_keys 36, by rows of up to 64 heads. A backward takes at most 4 (head_dim
 * + 11) for each row of Q, seqlen_q rounded up to whole tiles (or blocks of the mask); if
 * deterministic, where all queries see the same keys, 8 (head_dim + 10). A block mask adds dK and
 * dV in fp32 of two key tiles for each block; ragged sequences a tile each and the list. */
FATUNE_API int fatune_plan_workspace_size(const fatune_plan *plan, size_t *bytes);

/* Element (b, i, h, c) lies at data + b * stride_batch + i * stride_seq + h * stride_head + c, in
 * elements. Strides are multiples of 8 (e4m3: 16, fp32: 4), at least the head dim, or, for an
 * input, 0 to broadcast; stride_seq is at most 2^31 - 1; where the extent is 1 the stride is not
 * looked at. In an output the dimensions must nest: in ascending order each stride is past the end
 * of what the ones before it span. Outputs share no memory with inputs or each other. */
typedef struct fatune_tensor {
  void *data; /* device address, 16-byte aligned */
  int64_t stride_batch, stride_seq, stride_head;
} fatune_tensor;

/* Factors of a tensor of e4m3, in device memory: of a batch entry and head at data + b *
 * stride_batch + h * stride_head, or from there on of each descale_rows rows; a stride of 0
 * broadcasts. data NULL: 1. Above 0 and finite, as is Q's times K's times scale in fp32, else O is
 * NaN; V's within 2^60 of a head's first. An emulated GPU and FATUNE_CHECK=1 name the wrong. */
typedef struct fatune_descale {
  const float *data;
  int64_t stride_batch, stride_head;
} fatune_descale;

/* A run may be a part of a larger problem that has `heads` query heads (0: the run's). So many
 * batch entries, heads, queries and keys of it come before the run's first. Dropout counts from the
 * first ones of the larger problem, and so do causal and window where they are aligned top-left. */
typedef struct fatune_origin {
  int64_t batch, head, heads; /* 0 .. 2^31 - 1, as below */
  int64_t query, key;         /* with dropout: multiples of 64; ragged: 0 */
} fatune_origin;

/* K and V in pages of N rows: row j of batch entry b is row j % N of page
 * data[b * stride_batch + j / N * stride_page]. Batch entries may share pages. */
typedef struct fatune_page_table {
  const int32_t *data;               /* device address; not read behind the last key */
  int64_t stride_batch, stride_page; /* in numbers, >= 0 */
  int64_t columns, pages; /* pages of a batch entry, at most 2^30 / N; pages that there are */
} fatune_page_table;

typedef struct fatune_arguments {
  size_t size;     /* sizeof(fatune_arguments) */
  fatune_tensor q; /* [batch, seqlen_q, heads_q, head_dim] */
  fatune_tensor k; /* [batch, seqlen_k, heads_kv, head_dim] */
  fatune_tensor v; /* [batch, seqlen_k, heads_kv, head_dim_v] */
  /* [batch, seqlen_q, heads_q, head_dim_v]; overwritten by a forward. A row that sees no key
     becomes 0. */
  fatune_tensor o;
  /* Device address, [batch, heads_q, seqlen_q] contiguous, natural logarithm, scale applied; -inf
     for a row that sees no key, or its sink. NULL: not wanted, or fast_exp; a backward needs it. */
  float *lse;
  int64_t batch; /* 0: the request's; likewise below */
  int heads_q, heads_kv;
  int64_t seqlen_q, seqlen_k;
  float scale; /* softmax scale, > 0 and finite; 0: 1 / sqrt(head_dim) */
  /* Probability in [0, 1], rounded to a multiple of 2^-14; kept elements are divided by 1 - p of
     the rounded p. LSE and the normaliser are those without dropout. */
  float dropout;
  /* The dropout mask is a pure function of (seed, offset, batch, query head, i, j), the same for
     every config and GPU: Philox4x32-10 (Salmon et al., SC'11), templates/parts/dropout.cu.in. */
  uint64_t seed, offset;
  /* Device addresses, 8-byte aligned, read when the kernel runs, for captured graphs; or NULL. */
  const uint64_t *seed_device, *offset_device;
  /* Where the request has one, and only there: for the run's lengths, and for its batch and heads_q
     or 1. It must stay until the run has finished. */
  const fatune_mask *mask;
  /* fatune_plan_workspace_size bytes, 256-byte aligned; overwritten. NULL is allowed in a forward
   * that is not ragged and, of e4m3, whose config has no v_by_columns. */
  void *workspace;
  /* Of a backward plan, which reads o and lse as the forward wrote them, with the same scale,
   * dropout, seed, offset, mask and window. All of dq, dk, dv is overwritten; rows of queries that
   * see no key become 0, as do keys that no query sees. */
  fatune_tensor dout;       /* as o: the gradient of O */
  fatune_tensor dq, dk, dv; /* as q, k, v */
  const float *dlse;        /* device address, as lse: the gradient of LSE; NULL: 0 */
  /* Keys before and after its own that a query sees, where the request has a window: 0 .. 2^31 - 1,
   * or -1, no bound (the request's are hints); both lengths together are then at most 2^31 - 1024.
   * What causal hides stays hidden. */
  int64_t window_left, window_right;
  const fatune_captured *captured; /* all that the request's score captures, in any order */
  int captured_count;
  /* With sinks in the request, only then: device address, [heads_q]: logits in natural units, not
   * scaled, never dropped; -inf: none. LSE includes them, and is the sink if no key is seen. */
  const float *sinks;
  float *dsinks; /* of a backward with sinks, likewise: their gradient, overwritten */
  /* Where the dtype is FATUNE_E4M3: by query head, and by kv head; the latter where dtype_kv is. */
  fatune_descale descale_q, descale_k, descale_v;
  /* Where the request is ragged, and only there: batch sequences lie one behind the other in the
   * rows of all tensors, which have seqlen_q and seqlen_k rows (2^30 at most) and no batch. LSE and
   * dlse are [heads_q, seqlen_q]. Device addresses, [batch + 1], read when kernels run: rows before
   * each sequence, then of all; from 0 on, not falling, at most seqlen_q, seqlen_k. Some may be
   * empty. Causal, window, score and dropout count within a sequence, which is a batch entry. */
  const int32_t *cu_seqlens_q, *cu_seqlens_k;
  /* Likewise [batch]: how many of its rows a sequence uses; NULL: all. Rows of outputs that none
   * uses are not written. Kernels trust these numbers; an emulated GPU, and any with FATUNE_CHECK=1
   * when the session is opened, has them copied, checked, and the wrong batch entry named. */
  const int32_t *seqused_q, *seqused_k;
  /* Where the request has pages, and only there: k and v are pools, stride_batch is from page to
   * page; seqused_k is needed, cu_seqlens_k NULL; seqlen_k: most keys of any; ragged: of all. */
  fatune_page_table page_table;
  fatune_origin origin;
  /* Multiprocessors that a forward's persistent blocks leave to kernels beside them; at least 0. */
  int spare_multiprocessors;
  size_t workspace_size; /* bytes at workspace: too few are refused; 0: not told, not checked */
} fatune_arguments;

#define FATUNE_ARGUMENTS_INIT                                                                      \
  FATUNE_INIT_(fatune_arguments, FATUNE_WITH_(window_left, -1) FATUNE_WITH_(window_right, -1))

/* The same for a run of this batch, heads and lengths; smaller runs need at most as much. */
FATUNE_API int fatune_plan_workspace_for(const fatune_plan *plan, const fatune_arguments *arguments,
                                         size_t *bytes);

/* Launches on `stream` (a CUstream of the session's GPU; NULL: the default stream) and returns.
 * Allocates nothing, takes no lock, does no I/O, does not synchronise; may be captured into a
 * graph (which then keeps the addresses and values given here; the plan must outlive it). Any
 * number of threads may run one plan at once. The session's context (fatune_session_open says
 * which) must be current in the calling thread. Every argument is checked first;
 * FATUNE_E_ARGUMENT then names it and nothing was launched. FATUNE_E_DEVICE where the driver
 * refuses the launch; a fault of the kernel shows at the next synchronisation, as for any kernel.
 * The run's lengths, batch and heads may differ from the request's; 2^31 - 1 thread blocks bound
 * batch * heads_q * ceil(seqlen_q / block_m). A forward launches one kernel, and a second one that
 * puts parts together where keys are divided; its results are the same bits in every run of the
 * same lengths on the same kind of GPU. A backward plan launches three kernels, one after the
 * other; if deterministic, its results are the same bits, too. Ragged plans list tiles first. */
FATUNE_API int fatune_plan_run(fatune_plan *plan, const fatune_arguments *arguments, void *stream);
/* Writes new rows of K and V, laid out as Q is with heads_kv heads, into k and v of a forward's
 * arguments: row i of n of a batch entry becomes its key seqused_k (none: seqlen_k) - n + i, where
 * there is such a key. Promises and errors as of fatune_merge. */
FATUNE_API int fatune_append(fatune_plan *plan, const fatune_arguments *arguments,
                             const fatune_tensor *new_k, const fatune_tensor *new_v, void *stream);

/* ---- results put together ------------------------------------------------------------ */

/* The result of one forward: O and LSE as fatune_plan_run writes them. */
typedef struct fatune_part {
  fatune_tensor o;  /* [batch, seqlen_q, heads_q, head_dim_v] */
  const float *lse; /* device address, [batch, heads_q, seqlen_q] contiguous, natural logarithm */
} fatune_part;

enum { FATUNE_MERGE_PARTS = 32 }; /* at most, of one call */

typedef struct fatune_merge_arguments {
  size_t size;        /* sizeof(fatune_merge_arguments) */
  fatune_dtype dtype; /* of every O: FATUNE_FP16, FATUNE_BF16, FATUNE_FP32 */
  int head_dim_v;     /* 16..256, a multiple of 8 */
  int64_t batch;      /* 0: 1 */
  int heads_q;        /* 0: 1 */
  int64_t seqlen_q;   /* 1 .. 2^31 - 1 */
  fatune_tensor o;    /* as a part's; overwritten */
  float *lse;         /* as a part's; overwritten; NULL: not wanted */
  const fatune_part *parts;
  int part_count;     /* 1 .. FATUNE_MERGE_PARTS */
  const float *sinks; /* as a run's, of rows whose parts had none; NULL: none are added */
} fatune_merge_arguments;

#define FATUNE_MERGE_ARGUMENTS_INIT                                                                \
  FATUNE_INIT_(fatune_merge_arguments, FATUNE_WITH_(dtype, FATUNE_BF16))

/* Puts the results of forwards together that had the same queries and saw different keys (a shared
 * prefix, several devices): O and LSE are those of one forward that saw all. A part that saw no
 * key of a row has LSE -inf there; its O is ignored. Add sinks once: here, or in one forward. Sums
 * are in fp32, in the order given: the same bits in every run. o and lse may be those of a part,
 * with its strides. Promises and errors are fatune_plan_run's; the first call of a dtype and head
 * dim, with or without sinks, compiles: FATUNE_E_NOT_PREPARED while a stream is captured. */
FATUNE_API int fatune_merge(fatune_session *session, const fatune_merge_arguments *arguments,
                            void *stream);

/* ---- e4m3 ---------------------------------------------------------------------------- */

typedef struct fatune_quantise_arguments {
  size_t size;        /* sizeof(fatune_quantise_arguments) */
  fatune_dtype dtype; /* of x: FATUNE_FP16, FATUNE_BF16 */
  int head_dim;       /* 16..256, a multiple of 16 */
  int64_t batch;      /* 0: 1 */
  int heads;          /* 0: 1 */
  int64_t seqlen;     /* 1 .. 2^31 - 1 */
  fatune_tensor x;    /* [batch, seqlen, heads, head_dim] */
  fatune_tensor out;  /* of e4m3, as x; overwritten */
  float *descale;     /* device address, [batch, heads] contiguous; overwritten */
  /* 1: each row is rotated first, which spreads outliers over its columns: multiplied by signs
   * drawn from the seed, then in blocks of the largest power of two that divides head_dim by a
   * Hadamard matrix. One seed leaves products of rows as they are: Q and K want the same. */
  int rotate;
  uint64_t seed;
  int64_t descale_rows; /* 64, 128: descale is [batch, heads, blocks of so many rows]; 0: one */
} fatune_quantise_arguments;

#define FATUNE_QUANTISE_ARGUMENTS_INIT                                                             \
  FATUNE_INIT_(fatune_quantise_arguments, FATUNE_WITH_(dtype, FATUNE_BF16))

/* Turns a tensor into e4m3: out times descale is x, rounded to nearest. The descale of a head or a
 * block is its largest number / 448, at least 2^-40; rotated a bound, a power of two over the root
 * of the number of columns rotated together. NaN stays NaN. Infinity becomes NaN, its descale
 * infinite. The same bits in every run. Needs sm_89. Promises and errors as of fatune_merge. */
FATUNE_API int fatune_quantise(fatune_session *session, const fatune_quantise_arguments *arguments,
                               void *stream);

/* ---- without a plan: emit, compile --------------------------------------------------- */

/* CUDA C of a request for a GPU by name ("a100", "sm_80"; NULL: the session's). config NULL: the
 * best known. Needs no GPU, nor NVRTC. FATUNE_E_NOT_FOUND lists the GPUs known; else as
 * fatune_plan_make. Depends on the request's first group, the config and the GPU's sm alone. */
FATUNE_API int fatune_emit(char **text, fatune_session *session, const fatune_request *request,
                           const char *gpu, const char *config);
FATUNE_API void fatune_text_free(char *text); /* NULL is allowed */

/* ---- tuning -------------------------------------------------------------------------- */

typedef struct fatune_tune_options {
  size_t size;           /* sizeof(fatune_tune_options) */
  int if_missing;        /* 1: return at once when a measured winner exists for the bucket */
  double budget_seconds; /* stop starting candidates after this long; 0: no limit */
  int jobs;              /* compiling threads; 0: one per core */
  void (*progress)(void *payload, int done, int total, double best_us);
  void *payload;
} fatune_tune_options;

#define FATUNE_TUNE_OPTIONS_INIT FATUNE_INIT_(fatune_tune_options, )

/* Measures candidates for the request on the session's GPU and keeps every trial in the cache;
 * the next fatune_plan_make of the bucket finds the winner. Verifies each candidate before timing
 * it, the default config first. options NULL: all defaults. Takes seconds to minutes and the GPU's
 * memory for the request's tensors; nothing else should run on the GPU meanwhile. Errors as of
 * fatune_plan_make; FATUNE_E_INTERRUPTED; FATUNE_E_CACHE when not all could be stored. */
FATUNE_API int fatune_tune(fatune_session *session, const fatune_request *request,
                           const fatune_tune_options *options);

#ifdef __cplusplus
}
#endif
#endif
