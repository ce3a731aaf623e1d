/* test_emit.c: emission with the real templates and with broken ones; the line map.
 * in -> out: generator/emit.h -> Check suite. */
#include <check.h>
#include <string.h>

#include "generator/emit.h"
#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"
#include "tests/template_folder.h"

static struct ft_config plain; /* set as the suite is made */

static struct ft_lua *opened(const char *folder) {
  struct ft_lua *lua;
  ck_assert_msg(ft_lua_open(&lua, folder) == FT_OK, "%s", ft_detail());
  return lua;
}

static struct ft_source emitted(struct ft_lua *lua, const char *request_text, const char *gpu,
                                const struct ft_config *config) {
  const struct ft_request request = known_request(request_text);
  const struct ft_arch arch = known_gpu(gpu);
  struct ft_source source;
  const int status = ft_emit(&source, lua, &request, &arch, config);
  ck_assert_msg(status == FT_OK, "%s: %s", request_text, ft_detail());
  return source;
}

/* What emitting `template` as mma_forward.cu.in gives; the source is freed. */
static int emit_template(const char *template, struct ft_text *text) {
  const struct template_folder folder = make_folder(template);
  put(&folder, "part.cu.in", "part one\n$(config.block_n)\n//@ error('stop here')\n");
  struct ft_lua *const lua = opened(folder.path);
  const struct ft_request request = known_request("bf16 d64 hq8 nq4096 causal");
  const struct ft_arch arch = known_gpu("h200");
  struct ft_source source;
  const int status = ft_emit(&source, lua, &request, &arch, &plain);
  if (status == FT_OK && text != NULL) ft_text_append(text, source.text, source.length);
  if (status != FT_OK) ck_assert(source.text == NULL && source.line_count == 0);
  if (status == FT_OK) ft_source_free(&source);
  ft_lua_close(lua);
  remove_folder(&folder);
  return status;
}

START_TEST(values_reach_the_template) {
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_msg(
      emit_template("$(request.pass) $(request.dtype) $(request.head_dim) "
                    "$(request.head_dim_v) $(request.causal) $(request.mask_rows)\n"
                    "//@ if request.dropout or request.deterministic then error() end\n"
                    "$(config.family) $(config.block_m) $(config.warps) $(budget.smem_k_offset)\n"
                    "$(sm) $(target)\n$(request_text)\n$(config_text)\n$(again)\n",
                    &text) == FT_OK,
      "%s", ft_detail());
  struct ft_text config = FT_TEXT_INIT, expected = FT_TEXT_INIT;
  ft_config_print(&plain, &config);
  const struct ft_request request = known_request("bf16 d64 nq1");
  const struct ft_arch arch = known_gpu("h200");
  const struct ft_budget budget = ft_budget_of(&request, &plain, &arch);
  ft_text_add(&expected,
              "forward bf16 64 64 bottom-right 0\nmma_forward 64 4 %d\n90 sm_90\n"
              "forward bf16 d64 causal\n%s\n"
              "fatune emit 'forward bf16 d64 nq1 causal' --gpu sm_90 --config '%s'\n",
              ft_mma_forward_budget(&budget)->smem_k_offset, config.data, config.data);
  ck_assert_str_eq(text.data, expected.data);
  ft_text_free(&config);
  ft_text_free(&expected);
  ft_text_free(&text);
}
END_TEST

/* The target, and the command to emit it again, which names the GPU as --gpu takes it. */
START_TEST(wgmma_has_a_target_of_its_own) {
  const struct template_folder folder = make_folder("");
  put(&folder, "wgmma_forward.cu.in",
      "$(config.family) $(config.q_stages) $(budget.d_panels) $(budget.consumer_regs)\n"
      "$(sm) $(target)\n$(again)\n");
  const char *const text =
      "wgmma_forward block_m=128 block_n=64 stages=2 q_stages=2 overlap_tiles=1";
  struct ft_lua *const lua = opened(folder.path);
  const struct ft_config config = known_config(text);
  struct ft_source source = emitted(lua, "bf16 d128 hq8 nq4096", "h200", &config);
  ck_assert_str_eq(source.target, "sm_90a");
  ck_assert_ptr_eq(strstr(source.text, "wgmma_forward 2 2 232\n90 sm_90a\n"), source.text);
  ck_assert_ptr_nonnull(strstr(source.text, " --gpu sm_90 --config 'wgmma_forward block_m=128 "));
  ft_source_free(&source);
  ft_lua_close(lua);
  remove_folder(&folder);
}
END_TEST

/* An emulated GPU has instructions of its own and would not show it. */
START_TEST(o_of_e4m3_is_in_either_dtype) {
  const struct ft_config config =
      known_config("wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1");
  struct ft_lua *const lua = opened(NULL);
  struct ft_source bf16 = emitted(lua, "e4m3 d64 nq64", "h200", &config);
  struct ft_source fp16 = emitted(lua, "e4m3 o=fp16 d64 nq64", "h200", &config);
  ck_assert(strstr(bf16.text, "cvt.rn.bf16x2.f32") && !strstr(bf16.text, "cvt.rn.f16x2.f32"));
  ck_assert(strstr(fp16.text, "cvt.rn.f16x2.f32") && !strstr(fp16.text, "cvt.rn.bf16x2.f32"));
  ft_source_free(&bf16);
  ft_source_free(&fp16);
  ft_lua_close(lua);
}
END_TEST

START_TEST(parts_are_named_with_their_digests) {
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_int_eq(emit_template("$(parts_text)\n", &text), FT_OK);
  const struct ft_digest digest = ft_digest_of("$(parts_text)\n", 14);
  char hex[FT_DIGEST_HEX], expected[64];
  ft_digest_hex(&digest, hex);
  (void)snprintf(expected, sizeof expected, "mma_forward.cu.in %.8s\n", hex);
  ck_assert_str_eq(text.data, expected);
  ft_text_free(&text);
}
END_TEST

/* Emits mma_forward.cu.in beside a sub/deep.cu.in of the test's own. */
static int emit_two(const char *main_template, const char *deep, struct ft_text *text) {
  const struct template_folder folder = make_folder(main_template);
  put(&folder, "sub/deep.cu.in", deep);
  struct ft_lua *const lua = opened(folder.path);
  const struct ft_request request = known_request("bf16 d64 hq8 nq4096 causal");
  const struct ft_arch arch = known_gpu("h200");
  struct ft_source source;
  const int status = ft_emit(&source, lua, &request, &arch, &plain);
  if (status == FT_OK) {
    ft_text_append(text, source.text, source.length);
    ft_source_free(&source);
  }
  ft_lua_close(lua);
  remove_folder(&folder);
  return status;
}

START_TEST(a_part_stands_twice_under_two_names) {
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_msg(emit_two("//@ for _, name in ipairs { 'k', 'v' } do\n"
                         "//@   part('sub/deep.cu.in', { name = name, rows = config.block_n })\n"
                         "//@ end\n",
                         "load_$(name): $(math.max(rows, 3)) $(string.len(name))\n",
                         &text) == FT_OK,
                "%s", ft_detail());
  ck_assert_str_eq(text.data, "load_k: 32 1\nload_v: 32 1\n");
  ft_text_free(&text);
}
END_TEST

/* What a part was not given does not exist for it, whoever asked for it. */
static const struct {
  const char *main, *deep, *detail;
} unseen[] = {
    {"//@ part('sub/deep.cu.in', { name = 'k' })\n", "$(name)\n$(config.block_n)\n",
     "sub/deep.cu.in:2: undefined template name 'config'"},
    {"//@ part('sub/deep.cu.in', {})\n", "//@ local causal = request.causal\n",
     "sub/deep.cu.in:1: undefined template name 'request'"},
    {"x\n//@ part('sub/deep.cu.in', { name = 'k', rows = 3 })\n", "$(rows)\nname\n",
     "mma_forward.cu.in:2: template 'sub/deep.cu.in' reads no 'name'"},
    {"//@ part('sub/deep.cu.in', { name = nil })\n", "$(name)\n",
     "deep.cu.in:1: undefined template name 'name'"},
    {"x\n\n//@ part('sub/absent.cu.in', { name = 'k' })\n", "$(name)\n",
     "mma_forward.cu.in:3: template 'sub/absent.cu.in'"},
};
enum { UNSEEN = sizeof unseen / sizeof unseen[0] };

START_TEST(a_part_sees_what_it_was_given) {
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_int_eq(emit_two(unseen[_i].main, unseen[_i].deep, &text), FT_E_TEMPLATE);
  ck_assert_msg(strstr(ft_detail(), unseen[_i].detail) != NULL, "'%s' lacks '%s'", ft_detail(),
                unseen[_i].detail);
}
END_TEST

static const struct {
  const char *template, *detail;
  int status;
} broken[] = {
    {"fine\nx = $(nope);\n", "mma_forward.cu.in:2: undefined template name 'nope'", FT_E_TEMPLATE},
    {"\n\n$(config.blok_m)\n", "mma_forward.cu.in:3: undefined template name 'config.blok_m'",
     FT_E_TEMPLATE},
    {"$(request.seqlen_q)\n", "'request.seqlen_q'", FT_E_TEMPLATE}, /* not what text depends on */
    {"$(budget.nothing)\n", "'budget.nothing'", FT_E_TEMPLATE},
    {"a\n//@ if x then\n", "mma_forward.cu.in:", FT_E_TEMPLATE},
    {"a\n//@ end\n", "mma_forward.cu.in:2", FT_E_TEMPLATE},
    {"a\nb $(1 +) c\n", "mma_forward.cu.in:2", FT_E_TEMPLATE},
    {"a\n$(request.dropout)\n", "mma_forward.cu.in:2", FT_E_TEMPLATE},
    {"a\n//@ part('part.cu.in', { config = config })\n", "part.cu.in:3: stop here", FT_E_TEMPLATE},
    {"a\n//@ part('part.cu.in')\n", "part.cu.in:2: undefined template name 'config'",
     FT_E_TEMPLATE},
    {"a\n//@ part('absent.cu.in')\n", "mma_forward.cu.in:2: template 'absent.cu.in'",
     FT_E_TEMPLATE},
    {"//@ part('../mma_forward.cu.in')\n", "does not exist", FT_E_TEMPLATE},
    {"//@ part('/etc/passwd')\n", "does not exist", FT_E_TEMPLATE},
    {"//@ part('mma_forward.cu.in')\n", "", FT_E_MEMORY}, /* itself, without end */
    {"//@ while true do end\n", "mma_forward.cu.in:1: more than", FT_E_TEMPLATE},
    {"//@ local s = string.rep('x', 1 << 30)\n", "64 MiB", FT_E_MEMORY},
    {"//@ while true do\nx\n//@ end\n", "", FT_E_MEMORY}, /* endless text */
    {"a $('b\\nc') d\n", "line break", FT_E_TEMPLATE},
    {"a $('b\\0c') d\n", "NUL", FT_E_TEMPLATE},
    {"//@ error({})\n", "without text", FT_E_TEMPLATE},
    {"$(io.open('/etc/passwd'))\n", "'io'", FT_E_TEMPLATE},
};
enum { BROKEN = sizeof broken / sizeof broken[0] };

START_TEST(broken_template_is_located) {
  const int status = emit_template(broken[_i].template, NULL);
  ck_assert_msg(status == broken[_i].status, "%s: %d %s", broken[_i].template, status, ft_detail());
  ck_assert_msg(strstr(ft_detail(), broken[_i].detail) != NULL, "'%s' lacks '%s'", ft_detail(),
                broken[_i].detail);
}
END_TEST

START_TEST(state_survives_a_broken_template) {
  const struct template_folder folder = make_folder("//@ if config.block_m == 64 then\n"
                                                    "//@ local t = {}\n"
                                                    "//@ while true do t[#t + 1] = {} end\n"
                                                    "//@ end\nfine\n");
  struct ft_lua *const lua = opened(folder.path);
  const struct ft_request request = known_request("bf16 d64 nq4096");
  const struct ft_arch arch = known_gpu("h200");
  struct ft_config other = plain;
  *knob_of(&other, "block_m") = 128;
  for (int round = 0; round < 3; ++round) {
    struct ft_source source;
    ck_assert_int_eq(ft_emit(&source, lua, &request, &arch, &plain), FT_E_MEMORY);
    ck_assert_msg(ft_emit(&source, lua, &request, &arch, &other) == FT_OK, "%s", ft_detail());
    ck_assert_str_eq(source.text, "fine\n");
    ft_source_free(&source);
  }
  ft_lua_close(lua);
  remove_folder(&folder);
}
END_TEST

START_TEST(illegal_input_is_refused) {
  struct ft_lua *const lua = opened(NULL);
  const struct ft_arch h200 = known_gpu("h200"), t4 = known_gpu("t4");
  struct ft_request request = known_request("bf16 d64 nq4096");
  struct ft_config config = plain;
  struct ft_source source;
  *knob_of(&config, "warps") = 3;
  ck_assert_int_eq(ft_emit(&source, lua, &request, &h200, &config), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "warp-rows"));
  ck_assert_ptr_nonnull(strstr(ft_detail(), "warps=3"));
  ft_source_free(&source); /* freeing what was never made is fine */
  ck_assert_int_eq(ft_emit(&source, lua, &request, &t4, &plain), FT_E_UNSUPPORTED);
  request.head_dim = 12;
  ck_assert_int_eq(ft_emit(&source, lua, &request, &h200, &plain), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "head_dim is 12"));
  request = known_request("backward d64 nq4096");
  ck_assert_int_eq(ft_emit(&source, lua, &request, &h200, &plain), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "family"));
  ft_lua_close(lua);
}
END_TEST

START_TEST(text_depends_on_class_config_and_target_alone) {
  struct ft_lua *const lua = opened(NULL), *const other_lua = opened(NULL);
  struct ft_source a = emitted(lua, "bf16 d128 nq4096 mask=64x64@0.1", "h200", &plain);
  struct ft_source b =
      emitted(other_lua, "bf16 d128 hq32 hkv8 b7 nq1 nk99 mask=64x64", "h100-pcie", &plain);
  ck_assert_str_eq(a.text, b.text);
  ck_assert(ft_digest_equal(&a.digest, &b.digest));
  ft_source_free(&b);

  b = emitted(lua, "bf16 d128 nq4096 mask=64x64", "b200", &plain);
  ck_assert(!ft_digest_equal(&a.digest, &b.digest));
  ck_assert_str_eq(b.target, "sm_100");
  ft_source_free(&b);
  b = emitted(lua, "bf16 d128 nq4096 causal mask=64x64", "h200", &plain);
  ck_assert(!ft_digest_equal(&a.digest, &b.digest));
  ft_source_free(&b);
  ft_source_free(&a);
  ft_lua_close(lua);
  ft_lua_close(other_lua);
}
END_TEST

/* The target is in the digest even where the text does not mention it. */
START_TEST(digest_covers_the_target) {
  const struct template_folder folder = make_folder("same\n");
  struct ft_lua *const lua = opened(folder.path);
  struct ft_source a = emitted(lua, "bf16 d64 nq1", "h200", &plain);
  struct ft_source b = emitted(lua, "bf16 d64 nq1", "a100", &plain);
  ck_assert_str_eq(a.text, b.text);
  ck_assert(!ft_digest_equal(&a.digest, &b.digest));
  ft_source_free(&a);
  ft_source_free(&b);
  ft_lua_close(lua);
  remove_folder(&folder);
}
END_TEST

/* Line `number` of a template; *length is without the line break. */
static const char *line_of(const struct ft_template *file, int number, size_t *length) {
  const char *line = file->text, *const end = file->text + file->length;
  for (; number > 1; --number) line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
  const char *const stop = memchr(line, '\n', (size_t)(end - line));
  *length = (size_t)((stop ? stop : end) - line);
  return line;
}

/* Every emitted line equals the template line it claims to come from, up to the first value. */
static void check_origins(const struct ft_lua *lua, const struct ft_source *source) {
  const char *text = source->text;
  for (int i = 0; i < source->line_count; ++i) {
    const size_t emitted_length = strcspn(text, "\n");
    const struct ft_template *const file =
        ft_template_files_find(ft_lua_files(lua), source->origins[i].file);
    ck_assert_ptr_nonnull(file);
    size_t length;
    const char *const line = line_of(file, source->origins[i].line, &length);
    const char *const value = memmem(line, length, "$(", 2);
    const size_t literal = value ? (size_t)(value - line) : length;
    ck_assert_msg(emitted_length >= literal && memcmp(text, line, literal) == 0 &&
                      (value != NULL || emitted_length == literal),
                  "line %d is not line %d of %s", i + 1, source->origins[i].line, file->name);
    text += emitted_length + 1;
  }
  ck_assert(*text == '\0');
}

START_TEST(random_kernels_have_true_origins) {
  static const char *const gpus[] = {"t4", "a100", "l4", "h200", "b200", "rtx5090"};
  seed_cases();
  struct ft_lua *const lua = opened(NULL);
  for (int round = 0; round < 60; ++round) {
    struct ft_request request = random_request();
    request.pass = FT_FORWARD;
    request.deterministic = false;
    const struct ft_arch arch = known_gpu(gpus[random_int(0, 5)]);
    const bool unserved = request.dtype == FT_E4M3 && ft_rules_serves(&request, &arch) != FT_OK;
    if (arch.sm < 80 || unserved) request.dtype = FT_FP16;
    if (request.dtype == FT_FP16) request.descale_rows = request.fast_exp = 0;
    if (unserved || request.dtype == FT_FP16) request.dtype_o = FT_O_DEFAULT;
    if (arch.sm < 80) request.dtype_kv = FT_KV_DEFAULT;
    struct ft_config config;
    ck_assert_int_eq(ft_default_config(&request, &arch, &config), FT_OK);
    int tries = 0; /* a family may serve it and have no config */
    while (!random_legal_config(&request, &arch, random_family(), &config))
      ck_assert_int_lt(++tries, 10000);
    struct ft_source source;
    ck_assert_msg(ft_emit(&source, lua, &request, &arch, &config) == FT_OK, "seed %llu: %s",
                  (unsigned long long)cases_seed, ft_detail());
    ck_assert_ptr_nonnull(strstr(source.text, FT_ENTRY));
    ck_assert_ptr_null(strstr(source.text, "$("));
    ck_assert_ptr_null(strstr(source.text, "//@"));
    check_origins(lua, &source);
    ft_source_free(&source);
  }
  ft_lua_close(lua);
}
END_TEST

START_TEST(options_name_the_target) {
  const struct ft_source source = {.target = "sm_89"};
  char buffer[64];
  const char *options[8];
  const char **const list = ft_source_options(&source, buffer, options);
  ck_assert_str_eq(list[0], "--gpu-architecture=sm_89");
  int count = 0;
  while (list[count] != NULL) {
    ck_assert_ptr_null(strstr(list[count], "fast"));
    ++count;
  }
  ck_assert_int_le(count, 7);
}
END_TEST

START_TEST(log_speaks_of_template_lines) {
  const struct template_folder folder = make_folder("one\n//@ for i = 1, 3 do\nbody\n//@ end\n"
                                                    "//@ part('sub/deep.cu.in')\n");
  put(&folder, "sub/deep.cu.in", "deep\n");
  struct ft_lua *const lua = opened(folder.path);
  struct ft_source source = emitted(lua, "bf16 d64 nq1", "h200", &plain);
  ck_assert_int_eq(source.line_count, 5);
  struct ft_text mapped = FT_TEXT_INIT;
  ft_source_map_log(&source,
                    "fatune.cu(1): error: a(2)\nfatune.cu(4): warning #1: b\n  at line (3)\n"
                    "/tmp/x y(1): c\nfatune.cu(5): d\nfatune.cu(6): beyond\nfatune.cu(0): e\n"
                    "fatune.cu(): f\nfatune.cu(99999999999999999999): g\nptxas info : (1)\n"
                    "fatune.cu(2): the last",
                    &mapped);
  ck_assert_str_eq(mapped.data,
                   "templates/mma_forward.cu.in(1): error: a(2)\n"
                   "templates/mma_forward.cu.in(3): warning #1: b\n  at line (3)\n/tmp/x y(1): c\n"
                   "templates/sub/deep.cu.in(1): d\nfatune.cu(6): beyond\nfatune.cu(0): e\n"
                   "fatune.cu(): f\nfatune.cu(99999999999999999999): g\nptxas info : (1)\n"
                   "templates/mma_forward.cu.in(3): the last");
  ft_text_clear(&mapped);
  ft_source_map_log(&source, "", &mapped);
  ck_assert_str_eq(mapped.data, "");
  ft_text_free(&mapped);
  ft_source_free(&source);
  ft_lua_close(lua);
  remove_folder(&folder);
}
END_TEST

Suite *make_emit_suite(void) {
  plain = FT_CONFIG(mma_forward, .block_m = 64, .block_n = 32, .warps = 4, .stages = 2,
                    .ctas_per_sm = 1);
  Suite *const suite = suite_create("emit");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, values_reach_the_template);
  tcase_add_test(tests, wgmma_has_a_target_of_its_own);
  tcase_add_test(tests, o_of_e4m3_is_in_either_dtype);
  tcase_add_test(tests, parts_are_named_with_their_digests);
  tcase_add_test(tests, a_part_stands_twice_under_two_names);
  tcase_add_loop_test(tests, a_part_sees_what_it_was_given, 0, UNSEEN);
  tcase_add_loop_test(tests, broken_template_is_located, 0, BROKEN);
  tcase_add_test(tests, state_survives_a_broken_template);
  tcase_add_test(tests, illegal_input_is_refused);
  tcase_add_test(tests, text_depends_on_class_config_and_target_alone);
  tcase_add_test(tests, digest_covers_the_target);
  tcase_add_test(tests, random_kernels_have_true_origins);
  tcase_add_test(tests, options_name_the_target);
  tcase_add_test(tests, log_speaks_of_template_lines);
  suite_add_tcase(suite, tests);
  return suite;
}
