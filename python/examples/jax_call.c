/* jax_call.c: a handler of XLA's foreign function interface that runs a plan of fatune's.
 * in -> out: buffers of a computation, and an attribute `call` with what to run -> the run, on the
 * computation's stream, with these buffers' addresses.
 *
 * cc -shared -fPIC -I FOLDER_OF_fatune.h -I "$(python -c 'import jax;
 * print(jax.ffi.include_dir())')" \ jax_call.c -o jax_call.so */
#include <fatune.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

/* The words of `call`: addresses of fatune_plan_run, of fatune_detail and of the plan, whether it
 * runs on a stream, how many addresses are set; where each goes, in 64-bit words of the arguments,
 * negative: ~place, of a workspace; the arguments. */
enum { RUN, DETAIL, PLAN, ON_STREAM, ADDRESSES, PLACES };
enum { ARGUMENT_WORDS = sizeof(fatune_arguments) / sizeof(uint64_t), ALIGNMENT = 256 };

static XLA_FFI_Error *failed(const XLA_FFI_Api *api, const char *message) {
  XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                    .message = message,
                                    .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return api->XLA_FFI_Error_Create(&args);
}

static const XLA_FFI_Array *find_call(const XLA_FFI_Attrs *attributes) {
  static const char name[] = "call";
  for (int64_t n = 0; n < attributes->size; n++) {
    const XLA_FFI_ByteSpan *const span = attributes->names[n];
    if (attributes->types[n] == XLA_FFI_AttrType_ARRAY && span->len == sizeof name - 1 &&
        memcmp(span->ptr, name, span->len) == 0)
      return attributes->attrs[n];
  }
  return NULL;
}

static uint64_t address_of(const XLA_FFI_CallFrame *frame, int64_t n) {
  const XLA_FFI_Buffer *const buffer =
      n < frame->args.size ? frame->args.args[n] : frame->rets.rets[n - frame->args.size];
  return (uintptr_t)buffer->data;
}

static XLA_FFI_Error *run(XLA_FFI_CallFrame *frame, const int64_t *call) {
  int (*const plan_run)(fatune_plan *, const fatune_arguments *, void *) =
      (int (*)(fatune_plan *, const fatune_arguments *, void *))(uintptr_t)call[RUN];
  const char *(*const detail)(void) = (const char *(*)(void))(uintptr_t)call[DETAIL];
  uint64_t words[ARGUMENT_WORDS];
  fatune_arguments arguments;
  memcpy(words, call + PLACES + call[ADDRESSES], sizeof words);
  for (int64_t n = 0; n < call[ADDRESSES]; n++) {
    const int64_t place = call[PLACES + n];
    const uint64_t address = address_of(frame, n);
    if (place < 0)
      words[~place] = (address + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    else
      words[place] = address;
  }
  memcpy(&arguments, words, sizeof arguments);
  XLA_FFI_Stream_Get_Args stream = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE,
                                    .ctx = frame->ctx};
  XLA_FFI_Error *const error = call[ON_STREAM] ? frame->api->XLA_FFI_Stream_Get(&stream) : NULL;
  if (error) return error;
  const int status = plan_run((fatune_plan *)(uintptr_t)call[PLAN], &arguments, stream.stream);
  return status ? failed(frame->api, detail()) : NULL;
}

XLA_FFI_Error *fatune_jax_call(XLA_FFI_CallFrame *frame) {
  /* Its type has another name from jaxlib 0.11 on, but every extension begins with the same. */
  XLA_FFI_Metadata_Extension *const extension = (void *)frame->extension_start;
  if (extension && extension->extension_base.type == XLA_FFI_Extension_Metadata) {
    extension->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    extension->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  const XLA_FFI_Array *const call = find_call(&frame->attrs);
  const int64_t buffers = frame->args.size + frame->rets.size;
  const int64_t *const words = call ? call->data : NULL;
  if (!words || call->dtype != XLA_FFI_DataType_S64 || call->size <= PLACES ||
      words[ADDRESSES] != buffers || call->size != (size_t)(PLACES + buffers) + ARGUMENT_WORDS)
    return failed(frame->api, "the attribute `call` does not fit this handler");
  return run(frame, words);
}
