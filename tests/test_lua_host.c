/* test_lua_host.c: the sandbox, template files and the GPU table.
 * in -> out: generator/lua_host.h with embedded templates and hostile ones -> Check suite. */
#include <check.h>
#include <string.h>
#include <time.h>

#include "generator/lua_host.h"
#include "tests/generator_cases.h"
#include "tests/slow_tests.h"
#include "tests/suites.h"
#include "tests/template_folder.h"

/* Of this process, so that a busy machine fails no test. */
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Opens a folder whose gpus.lua is `chunk`: plain Lua with the sandbox's own globals. */
static int run_chunk(const char *chunk, size_t length) {
  const struct template_folder folder = make_folder("");
  put_file(&folder, "gpus.lua", chunk, length);
  struct ft_lua *lua;
  const int status = ft_lua_open(&lua, folder.path);
  if (status != FT_OK) ck_assert_ptr_null(lua);
  ft_lua_close(lua);
  remove_folder(&folder);
  return status;
}

/* Must be absent: ways out, ways to survive a limit, and what differs from run to run. */
static const char *const forbidden[] = {
    "io",     "os",       "package",     "debug",          "require",
    "dofile", "loadfile", "loadstring",  "print",          "warn",
    "pcall",  "xpcall",   "coroutine",   "collectgarbage", "getmetatable",
    "next",   "utf8",     "string.dump", "math.random",    "math.randomseed",
    "_G.io",  "_ENV.os"};

START_TEST(sandbox_lacks_what_reaches_outside) {
  char chunk[160];
  (void)snprintf(chunk, sizeof chunk, "if %s ~= nil then error('escape') end return {}",
                 forbidden[_i]);
  ck_assert_msg(run_chunk(chunk, strlen(chunk)) == FT_OK, "%s: %s", forbidden[_i], ft_detail());
}
END_TEST

/* Chunk, expected status, and what the detail must say. */
static const struct {
  const char *chunk;
  int status;
  const char *detail;
} hostile[] = {
    {"return {}", FT_OK, ""},
    {"local f = load('return 1') assert(f() == 1) return {}", FT_OK, ""},
    {"local f = load('return x', 'n', 't', {x = 2}) assert(f() == 2) return {}", FT_OK, ""},
    {"local f, m = load('\\27Lua') error(f == nil and m)", FT_E_TEMPLATE, "binary chunk"},
    {"local f, m = load('\\27LuaT', 'n', 'b') error(f == nil and m)", FT_E_TEMPLATE,
     "binary chunk"},
    {"local f, m = load('\\27LuaT', 'n', 'bt', {}) error(f == nil and m)", FT_E_TEMPLATE,
     "binary chunk"},
    {"local f, m = load(function() return '\\27Lua' end, 'n', 'b') error(f == nil and m)",
     FT_E_TEMPLATE, "binary chunk"},
    {"local x\nwhile true do end", FT_E_TEMPLATE, "gpus.lua:2: more than"},
    {"local function f() return f() end f()", FT_E_TEMPLATE, "endless loop"},
    {"for i = 1, math.maxinteger do local s = 'x' .. i end", FT_E_TEMPLATE, "endless loop"},
    {"local t <close> = setmetatable({}, {__close = function() while true do end end}) "
     "while true do end",
     FT_E_TEMPLATE, "endless loop"},
    {"local function f(n) local t <close> = setmetatable({}, {__close = function() while true do "
     "end "
     "end}) if n > 0 then f(n - 1) end while true do end end f(20000)",
     FT_E_TEMPLATE, "endless loop"},
    {"table.move({}, 1, 1 << 62, 2)", FT_E_TEMPLATE, "gpus.lua:1: more than"},
    {"table.insert(setmetatable({}, {__len = function() return 1 << 62 end}), 1, 1)", FT_E_TEMPLATE,
     "__len"},
    {"local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, table.remove(t, "
     "1)) "
     "end",
     FT_E_TEMPLATE, "endless loop"},
    {"string.rep('', 1 << 62)", FT_E_TEMPLATE, "endless loop"},
    {"local s = ('a'):rep(1 << 20) while true do s:reverse() end", FT_E_TEMPLATE, "endless loop"},
    {"(('a'):rep(60)):find(('a?'):rep(30) .. ('a'):rep(60))", FT_E_TEMPLATE, "30 repetitions"},
    {"(('a'):rep(1e5)):match('.-.-b')", FT_E_TEMPLATE, "2 repetitions"},
    {"(('a'):rep(3e4)):gsub('a-b', '')", FT_E_TEMPLATE, "1 repetitions"},
    {"assert((('a'):rep(1e5) .. 'b'):find('b', 1, true) == 100001) return {}", FT_OK, ""},
    {"assert(('x = y'):match('^%s*(%w+)%s*=') == 'x') return {}", FT_OK, ""},
    {"return {{name = tostring({})}}", FT_E_TEMPLATE, "a table has no text"},
    {"return {{name = tostring(print or assert)}}", FT_E_TEMPLATE, "a function has no text"},
    {"return {{name = string.format('%s', {})}}", FT_E_TEMPLATE, "a table has no text"},
    {"return {{name = string.format('%-20p', 'x')}}", FT_E_TEMPLATE, "address"},
    {"assert(string.format('%%p %s', setmetatable({}, {__tostring = function() return 'x' end})) "
     "== "
     "'%p x') return {}",
     FT_OK, ""},
    {"setmetatable({}, {__gc = function() while true do end end})", FT_E_TEMPLATE, "__gc"},
    {"local function f() return 1 + f() end f()", FT_E_MEMORY, "64 MiB"},
    {"local s = string.rep('x', 1 << 30) return {}", FT_E_MEMORY, "64 MiB"},
    {"local s = 'x' while true do s = s .. s end", FT_E_MEMORY, "64 MiB"},
    {"local t = {} for i = 1, 1e9 do t[i] = {i} end", FT_E_MEMORY, "64 MiB"},
    {"local s = table.concat({}, '', 1, 1 << 40)", FT_E_TEMPLATE, "gpus.lua:1"},
    {"error({})", FT_E_TEMPLATE, "without text"},
    {"error()", FT_E_TEMPLATE, "without text"},
    {"return 7", FT_E_TEMPLATE, "must return a table"},
    {"return", FT_E_TEMPLATE, "must return a table"},
    {"x = = 1", FT_E_TEMPLATE, "gpus.lua:1"},
    {"return {7}", FT_E_TEMPLATE, "row 1"},
    {"return {{}}", FT_E_TEMPLATE, "'name'"},
    {"return {{name = 'a', sm = 'x'}}", FT_E_TEMPLATE, "a: field 'sm'"},
    {"return {{name = 'a', sm = 1.5}}", FT_E_TEMPLATE, "a: field 'sm'"},
    {"return {{name = ('a'):rep(64)}}", FT_E_TEMPLATE, "63 bytes"},
    {"return {{name = 'a\\0b'}}", FT_E_TEMPLATE, "'name'"},
    {"return setmetatable({}, {__index = function() while true do end end, "
     "__len = function() return 1 end})",
     FT_E_TEMPLATE, "row 1"},
    /* ended by the time they take: the long form of the tests */
    {"local a, b = ('a'):rep(1 << 21) .. 'b', ('a'):rep(1 << 21) .. 'c' while true do local x = a "
     "< "
     "b end",
     FT_E_TEMPLATE, "endless loop"},
    {"while true do (('a'):rep(400)):find('.-.-b') end", FT_E_TEMPLATE, "endless loop"},
};
enum { HOSTILE = sizeof hostile / sizeof hostile[0], SLOW_HOSTILE = 2 };

START_TEST(hostile_chunk_ends_cleanly) {
  const double start = seconds();
  const int status = run_chunk(hostile[_i].chunk, strlen(hostile[_i].chunk));
  ck_assert_msg(status == hostile[_i].status, "%s: %d (%s)", hostile[_i].chunk, status,
                ft_detail());
  if (status != FT_OK)
    ck_assert_msg(strstr(ft_detail(), hostile[_i].detail) != NULL, "%s: '%s'", hostile[_i].chunk,
                  ft_detail());
  ck_assert_msg(seconds() - start < 20, "%s took %.1f s", hostile[_i].chunk, seconds() - start);
}
END_TEST

START_TEST(bytecode_files_are_refused) {
  ck_assert_int_eq(run_chunk("\033LuaT\0\0\0", 8), FT_E_TEMPLATE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "binary chunk"));
}
END_TEST

/* Lua seeds its hashes from addresses and the clock; output must not depend on that. */
START_TEST(pairs_goes_in_order) {
  static const char chunk[] =
      "local t, s = {}, ''\n"
      "for i = 1, 200 do t['k' .. i * 7 % 1000] = i end\n"
      "local last, count = '', 0\n"
      "for k, v in pairs(t) do assert(last < k and t[k] == v) last, count = k, count + 1 end\n"
      "assert(count == 200)\n"
      "for k in pairs({}) do error('empty') end\n"
      "return {}";
  ck_assert_msg(run_chunk(chunk, sizeof chunk - 1) == FT_OK, "%s", ft_detail());
}
END_TEST

START_TEST(folder_faults_are_named) {
  struct ft_lua *lua;
  ck_assert_int_eq(ft_lua_open(&lua, "/nonexistent/templates"), FT_E_IO);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "/nonexistent/templates"));
  const struct template_folder folder = make_folder("");
  char path[128];
  (void)snprintf(path, sizeof path, "%s/engine.lua", folder.path);
  ck_assert_int_eq(unlink(path), 0);
  ck_assert_int_eq(ft_lua_open(&lua, folder.path), FT_E_TEMPLATE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "engine.lua is missing"));
  ft_lua_close(NULL);
  remove_folder(&folder);
}
END_TEST

static struct ft_digest digest_of_folder(const char *folder) {
  struct ft_lua *lua;
  ck_assert_msg(ft_lua_open(&lua, folder) == FT_OK, "%s", ft_detail());
  const struct ft_digest digest = ft_lua_templates_digest(lua);
  ft_lua_close(lua);
  return digest;
}

START_TEST(digest_is_of_names_and_contents) {
  const struct template_folder folder = make_folder("a"), twin = make_folder("a");
  const struct ft_digest digest = digest_of_folder(folder.path);
  struct ft_digest other = digest_of_folder(twin.path);
  ck_assert(ft_digest_equal(&digest, &other)); /* not of the path */
  put(&folder, "unused.txt", "notes");
  other = digest_of_folder(folder.path);
  ck_assert(ft_digest_equal(&digest, &other)); /* not of what is no template */
  put(&folder, "sub/deep.cu.in", "");
  other = digest_of_folder(folder.path);
  ck_assert(!ft_digest_equal(&digest, &other));
  put(&twin, "mma_forward.cu.in", "b");
  other = digest_of_folder(twin.path);
  ck_assert(!ft_digest_equal(&digest, &other));
  remove_folder(&folder);
  remove_folder(&twin);
}
END_TEST

START_TEST(folder_and_embedded_are_the_same) {
  const struct ft_digest embedded = digest_of_folder(NULL);
  const struct ft_digest folder = digest_of_folder(FATUNE_SOURCE_DIR "/templates/");
  ck_assert(ft_digest_equal(&embedded, &folder));
}
END_TEST

START_TEST(gpus_answer_to_their_names) {
  static const char *const names[][2] = {
      {"h200", "h200"},        {"H200", "h200"},
      {"a100", "a100-80gb"},   {"A100 80GB", "a100-80gb"},
      {"h100", "h100-sxm"},    {"H100_SXM", "h100-sxm"},
      {"RTX 4090", "rtx4090"}, {"NVIDIA GeForce RTX 4090", "rtx4090"},
      {"Tesla T4", "t4"},      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"sm_75", "t4"},         {"sm_120", "rtx5090"},
      {"NVIDIA H200", "h200"}, {"NVIDIA RTX A6000", "rtxa6000"},
      {"sm_103", "b300"},      {"NVIDIA B300 SXM6 AC", "b300"},
      {"sm_121", "gb10"},      {"RTX 5080", "rtx5080"},
      {"sm_86", "a10"},        {"RTX PRO 6000", "rtxpro6000"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    ck_assert_str_eq(known_gpu(names[i][0]).name, names[i][1]);
  ck_assert_int_eq(known_gpu("sm_80").sm, 80);
  struct ft_lua *lua;
  struct ft_arch arch;
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  static const char *const unknown[] = {"", "-", "h20", "h2000", "sm_91", "a1000"};
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; ++i) {
    ck_assert_int_eq(ft_lua_gpu(lua, unknown[i], &arch), FT_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(ft_detail(), "h100-pcie"));
  }
  ft_lua_close(lua);
}
END_TEST

/* Published dense fp16 TFLOPS with fp32 accumulation, from the vendor's data sheets. */
START_TEST(gpu_table_is_plausible) {
  static const struct {
    const char *name;
    double tflops;
  } published[] = {{"t4", 65},      {"a100", 312},      {"a30", 165},
                   {"a10", 125},    {"l4", 121},        {"l40s", 362},
                   {"rtx3090", 71}, {"rtx4090", 165.2}, {"rtx5090", 209.5}};
  for (size_t i = 0; i < sizeof published / sizeof published[0]; ++i) {
    const struct ft_arch arch = known_gpu(published[i].name);
    const double tflops = arch.mma_flops_per_clk * arch.sm_count * arch.clock_ghz * 1e-3;
    ck_assert_msg(tflops > 0.97 * published[i].tflops && tflops < 1.03 * published[i].tflops,
                  "%s: %g TFLOPS, published %g", arch.name, tflops, published[i].tflops);
  }
  struct ft_lua *lua;
  struct ft_arch arch;
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  ft_fail(FT_E_IO, "before");
  int count = 0;
  for (; ft_lua_gpu_at(lua, count, &arch) == FT_OK; ++count) {
    ck_assert_int_ge(arch.sm, 75);
    ck_assert_int_eq(arch.regs_per_sm, 65536);
    ck_assert_int_eq(arch.smem_per_block + arch.smem_reserved, arch.smem_per_sm);
    ck_assert_int_ge(arch.blocks_per_sm * 128, arch.threads_per_sm);
    ck_assert(arch.dram_gbs > 100 && arch.clock_ghz > 1 && arch.l2_bytes >= 1 << 20);
  }
  ck_assert_int_ge(count, 16);
  ck_assert_str_eq(ft_detail(), "before"); /* the end of the table is no failure to explain */
  ft_lua_close(lua);
}
END_TEST

Suite *make_lua_host_suite(void) {
  Suite *const suite = suite_create("lua_host");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, sandbox_lacks_what_reaches_outside, 0,
                      sizeof forbidden / sizeof forbidden[0]);
  tcase_add_loop_test(tests, hostile_chunk_ends_cleanly, 0,
                      tests_are_slow() ? HOSTILE : HOSTILE - SLOW_HOSTILE);
  tcase_add_test(tests, bytecode_files_are_refused);
  tcase_add_test(tests, pairs_goes_in_order);
  tcase_add_test(tests, folder_faults_are_named);
  tcase_add_test(tests, digest_is_of_names_and_contents);
  tcase_add_test(tests, folder_and_embedded_are_the_same);
  tcase_add_test(tests, gpus_answer_to_their_names);
  tcase_add_test(tests, gpu_table_is_plausible);
  suite_add_tcase(suite, tests);
  return suite;
}
