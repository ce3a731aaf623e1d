/* test_trust.c: which files a store trusts: by keys and signatures in minisign's format, by who
 * can write to their place, by FATUNE_TRUST. in -> out: files made by minisign 0.11 (tests/signed),
 * keys and bundles made here -> Check suite. */
#include <sodium.h>
#include <sys/resource.h>

#include "cache/place.h"
#include "cache/trust.h"
#include "cache/trust_keys.h"
#include "tests/run_program.h"
#include "tests/suites.h"
#include "tests/trust_lab.h"

#define SIGNED FATUNE_TESTS_DIR "/signed/"

static struct trust_lab lab;

static void set_up(void) {
  trust_lab_open(&lab);
}

static void tear_down(void) {
  trust_lab_close(&lab);
}

/* To be freed, with a NUL at the end. */
static char *text_of(const char *path) {
  struct bytes bytes = read_bytes(path);
  bytes.data[bytes.size] = '\0';
  return (char *)bytes.data;
}

/* The n-th line. */
static void line_of(const char *text, int n, char line[256]) {
  while (n-- > 0) text = strchr(text, '\n') + 1;
  snprintf(line, 256, "%.*s", (int)strcspn(text, "\n"), text);
}

/* -- minisign's own files ------------------------------------------------------------------- */

/* The scheme has no randomness: with minisign's key and its comment, its very signature comes out.
 */
START_TEST(signatures_are_minisigns_to_the_letter) {
  char *const secret = text_of(SIGNED "test.key"), *const public = text_of(SIGNED "test.pub");
  char *const theirs = text_of(SIGNED "sm_80.fatune.minisig");
  const struct bytes bundle = read_bytes(SIGNED "sm_80.fatune");
  struct ft_secret_key key;
  struct ft_public_key trusted;
  struct ft_text ours = FT_TEXT_INIT, comment = FT_TEXT_INIT;
  int index = -1;
  assert_ok(ft_secret_key_parse(&key, secret, NULL));
  assert_ok(ft_public_key_parse(&trusted, public));
  assert_ok(ft_signature_check(theirs, bundle.data, bundle.size, &trusted, 1, &index, &comment));
  ck_assert_int_eq(index, 0);
  ck_assert_str_eq(comment.data, "by the real one");
  assert_ok(ft_signature_make(&key, bundle.data, bundle.size, "by the real one", &ours));
  for (int n = 1; n < 4; n++) {
    char left[256], right[256];
    line_of(ours.data, n, left);
    line_of(theirs, n, right);
    ck_assert_str_eq(left, right);
  }
  ft_text_free(&ours);
  ft_text_free(&comment);
  free(secret);
  free(public);
  free(theirs);
  free(bundle.data);
}
END_TEST

START_TEST(a_bundle_signed_by_minisign_is_served) {
  char file[160];
  struct ft_bundle_verdict verdict;
  const struct bytes public = read_bytes(SIGNED "test.pub");
  write_bytes(lab.key_file, public.data, public.size);
  free(public.data);
  setenv("FATUNE_TRUST", "signed", 1);
  struct ft_store *const store = open_store(&lab.fixture);
  assert_ok(ft_store_verify_bundle(store, SIGNED "sm_80.fatune", &verdict));
  ck_assert(verdict.is_signed);
  ck_assert_str_eq(verdict.how, "signed by FF7F39BAAA14DC56: by the real one");
  ck_assert_int_eq(verdict.kernels, 1);
  ck_assert_int_eq(verdict.damaged, 0);
  int64_t trials, kernels;
  assert_ok(ft_store_import(store, SIGNED "sm_80.fatune", &trials, &kernels));
  ck_assert_int_eq(kernels, 1);
  ft_store_close(store);
  snprintf(file, sizeof file, "%s", SIGNED "sm_80.fatune");
  ck_assert_int_eq(number_of(file, "SELECT count(*) FROM kernels"), 1);
}
END_TEST

/* -- secret keys ---------------------------------------------------------------------------- */

static void put_little_endian(unsigned char *bytes, uint64_t number) {
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> (8 * i));
}

START_TEST(passphrases_open_keys) {
  struct ft_secret_key key;
  char text[512];
  trust_lab_hide(&lab.trusted, "correct horse", 16 << 20, text);
  assert_status(ft_secret_key_parse(&key, text, NULL), FT_E_NOT_FOUND);
  assert_status(ft_secret_key_parse(&key, text, "wrong horse"), FT_E_ARGUMENT);
  assert_status(ft_secret_key_parse(&key, text, ""), FT_E_ARGUMENT);
  assert_ok(ft_secret_key_parse(&key, text, "correct horse"));
  ck_assert_mem_eq(&key, &lab.trusted, sizeof key);
  ft_secret_key_wipe(&key);
  ck_assert_int_eq(key.key[0] | key.key[63], 0);
  trust_lab_hide(&lab.trusted, "correct horse", UINT64_C(1) << 40,
                 text); /* a file that asks too much */
  assert_status(ft_secret_key_parse(&key, text, "correct horse"), FT_E_ARGUMENT);
}
END_TEST

/* What minisign itself asks for is 1 GiB. */
START_TEST(a_passphrase_takes_memory) {
  struct ft_secret_key key;
  struct rlimit before;
  unsigned char blob[158];
  char text[512], line[256];
  size_t size = 0;
  trust_lab_hide(&lab.trusted, "correct horse", 1 << 30, text);
  line_of(text, 1, line);
  ck_assert_int_eq(sodium_base642bin(blob, sizeof blob, line, strlen(line), NULL, &size, NULL,
                                     sodium_base64_VARIANT_ORIGINAL),
                   0);
  put_little_endian(blob + 38, 1 << 25);
  sodium_bin2base64(line, sizeof line, blob, sizeof blob, sodium_base64_VARIANT_ORIGINAL);
  snprintf(text, sizeof text, "untrusted comment: x\n%s\n", line);
  ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){600 << 20, before.rlim_max}), 0);
  const int status = ft_secret_key_parse(&key, text, "correct horse");
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
  ck_assert_int_eq(status, FT_E_MEMORY);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "it takes 1024 MiB"));
}
END_TEST

static const char *const no_keys[] = {
    "",
    "untrusted comment: x",
    "untrusted comment: x\n",
    "untrusted comment: x\nRW\n",
    "comment: x\nRWRW3BSqujl//4pGwA2WEc35lbO1ho69RHb8aWWMu7AmAARZ5FnWEr4m\n",
    "untrusted comment: x\nRWRW3BSqujl//4pGwA2WEc35lbO1ho69RHb8aWWMu7AmAARZ5FnWEr4mAAAA\n",
    "untrusted comment: x\nRWRW3BSqujl//4pGwA2WEc35lbO1ho69RHb8aWWMu7AmAARZ5FnWEr4m!\n",
    "untrusted comment: x\nXXRW3BSqujl//4pGwA2WEc35lbO1ho69RHb8aWWMu7AmAARZ5FnWEr4m\n",
    "untrusted comment: x\n!WRW3BSqujl//4pGwA2WEc35lbO1ho69RHb8aWWMu7AmAARZ5FnWEr4m\n"};

START_TEST(what_is_no_key_is_refused) {
  struct ft_public_key public;
  struct ft_secret_key secret;
  assert_status(ft_public_key_parse(&public, no_keys[_i]), FT_E_ARGUMENT);
  assert_status(ft_secret_key_parse(&secret, no_keys[_i], NULL), FT_E_ARGUMENT);
}
END_TEST

/* The first of them is named; of the others there are 256 at most. */
START_TEST(keys_that_are_none_are_counted) {
  struct ft_public_key *keys = NULL;
  char folder_of_keys[192], path[256], reason[256];
  int count = 0, refused = 0;
  snprintf(folder_of_keys, sizeof folder_of_keys, "%s", lab.key_file);
  *strrchr(folder_of_keys, '/') = '\0';
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/0%d.pub", folder_of_keys, i);
    write_bytes(path, "no key", 6);
  }
  for (int i = 0; i < 300; i++) {
    snprintf(path, sizeof path, "%s/1%03d.pub", folder_of_keys, i);
    ck_assert_int_eq(link(lab.key_file, path), 0);
  }
  assert_ok(ft_trusted_keys(&keys, &count, &refused, reason));
  ck_assert_int_eq(count, 256);
  ck_assert_int_eq(refused, 2);
  ck_assert_msg(strstr(reason, "/00.pub'") != NULL, "%s", reason);
  free(keys);
}
END_TEST

START_TEST(a_comment_is_one_line_of_bounded_length) {
  struct ft_text text = FT_TEXT_INIT, longer = FT_TEXT_INIT, comment = FT_TEXT_INIT;
  struct ft_public_key trusted;
  char longest[4200], lines[4][256];
  char *const public = text_of(lab.key_file);
  int index;
  assert_status(ft_signature_make(&lab.trusted, "x", 1, "two\nlines", &text), FT_E_ARGUMENT);
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_status(ft_signature_make(&lab.trusted, "x", 1, longest, &text), FT_E_ARGUMENT);
  ft_text_clear(&text);
  assert_ok(ft_signature_make(&lab.trusted, "x", 1, "a comment", &text));
  for (int i = 0; i < 4; i++) line_of(text.data, i, lines[i]);
  ft_text_add(&longer, "%s\n%s\n%s%s\n%s\n", lines[0], lines[1], lines[2], longest, lines[3]);
  assert_ok(ft_public_key_parse(&trusted, public));
  assert_ok(ft_signature_check(text.data, "x", 1, &trusted, 1, &index, &comment));
  assert_status(ft_signature_check(longer.data, "x", 1, &trusted, 1, &index, &comment), FT_E_CACHE);
  ck_assert_str_eq(comment.data, "a comment");
  struct ft_text *const texts[] = {&text, &longer, &comment};
  for (int i = 0; i < 3; i++) ft_text_free(texts[i]);
  free(public);
}
END_TEST

/* Each field that says what kind of key it is, and each limit, one past what is known. */
START_TEST(keys_of_other_kinds_are_refused_by_name) {
  static const struct {
    size_t at;
    const char *says;
  } others[] = {{0, "another kind than Ed"}, {1, "another kind than Ed"},
                {2, "not of the kind Sc"},   {3, "not of the kind Sc"},
                {4, "another kind than Ed"}, {5, "another kind than Ed"},
                {45, "2^28 operations"},     {53, "2 GiB"}};
  unsigned char blob[158];
  char text[512], encoded[256], line[256];
  struct ft_secret_key key;
  size_t size = 0;
  trust_lab_hide(&lab.trusted, "correct horse", 16 << 20, text);
  line_of(text, 1, line);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    ck_assert_int_eq(sodium_base642bin(blob, sizeof blob, line, strlen(line), NULL, &size, NULL,
                                       sodium_base64_VARIANT_ORIGINAL),
                     0);
    blob[others[i].at] ^= 0x40;
    sodium_bin2base64(encoded, sizeof encoded, blob, sizeof blob, sodium_base64_VARIANT_ORIGINAL);
    snprintf(text, sizeof text, "untrusted comment: x\n%s\n", encoded);
    assert_status(ft_secret_key_parse(&key, text, "correct horse"), FT_E_ARGUMENT);
    ck_assert_msg(strstr(ft_detail(), others[i].says) != NULL, "byte %zu: %s", others[i].at,
                  ft_detail());
  }
}
END_TEST

/* A signature with a line dropped, doubled, cut or empty is none; one with the ends of lines of
 * another system is. */
START_TEST(a_signature_has_four_lines) {
  struct ft_public_key trusted;
  struct ft_text good = FT_TEXT_INIT, comment = FT_TEXT_INIT;
  struct ft_text changed = FT_TEXT_INIT;
  char *const public = text_of(lab.key_file);
  int index;
  assert_ok(ft_public_key_parse(&trusted, public));
  assert_ok(ft_signature_make(&lab.trusted, "bytes", 5, "a comment", &good));
  for (int kind = 0; kind < 5; kind++)
    for (int n = 0; n < 4; n++) {
      ft_text_clear(&changed);
      for (int i = 0; i < 4; i++) {
        char line[256];
        line_of(good.data, i, line);
        if (kind == 0 && i == n) continue;
        if (kind == 4 && i == n) ft_text_add(&changed, "\n");
        if (kind == 1 && i == n) ft_text_add(&changed, "%s\n", line);
        if (kind == 2 && i == n) line[strlen(line) / 2] = '\0';
        ft_text_add(&changed, "%s%s\n", line, kind == 3 ? "\r" : "");
      }
      const int status =
          ft_signature_check(changed.data, "bytes", 5, &trusted, 1, &index, &comment);
      const bool harmless = kind == 3 || (kind == 2 && n == 0); /* half an untrusted comment */
      ck_assert_msg(status == (harmless ? FT_OK : FT_E_CACHE), "kind %d, line %d: %d", kind, n,
                    status);
    }
  ft_text_free(&changed);
  ft_text_free(&good);
  ft_text_free(&comment);
  free(public);
}
END_TEST

/* -- places --------------------------------------------------------------------------------- */

START_TEST(a_place_too_long_is_none) {
  enum { NAME = 300, PATH = 5000 };
  static char path[PATH];
  char *real = NULL;
  memset(path, 'n', NAME);
  path[0] = '/';
  assert_status(ft_place_check(path, &real), FT_E_CACHE);
  for (size_t i = 0; i < PATH - 1; i++) path[i] = i % 2 ? '.' : '/';
  assert_status(ft_place_check(path, &real), FT_E_CACHE);
  ck_assert_ptr_null(real);
}
END_TEST

START_TEST(places_are_named_without_links) {
  char path[256], *real = NULL;
  snprintf(path, sizeof path, "%s/../layers/./sm_90.fatune", lab.layers);
  assert_ok(ft_place_check(path, &real));
  ck_assert_str_eq(real, lab.bundle);
  free(real);
  ck_assert_int_eq(chdir(lab.layers), 0);
  assert_ok(ft_place_check("sm_90.fatune", &real));
  ck_assert_str_eq(real, lab.bundle);
  free(real);
  ck_assert_int_eq(symlink("../layers", "here"), 0);
  assert_ok(ft_place_check("here/here/sm_90.fatune", &real));
  ck_assert_str_eq(real, lab.bundle);
  free(real);
  ck_assert_int_eq(symlink("round", "round"), 0);
  assert_status(ft_place_check("round", &real), FT_E_CACHE);
  assert_status(ft_place_check("nothing", &real), FT_E_NOT_FOUND);
  assert_status(ft_place_check("sm_90.fatune/x", &real), FT_E_CACHE);
  assert_ok(ft_place_check("/", &real));
  ck_assert_str_eq(real, "/");
  free(real);
}
END_TEST

/* -- the policy ----------------------------------------------------------------------------- */

START_TEST(a_signature_makes_up_for_a_place) {
  ck_assert_int_eq(chmod(lab.layers, 0777), 0);
  ck_assert_int_eq(trust_lab_served(&lab, "owner"), 3);
  ck_assert_int_eq(trust_lab_served(&lab, "signed"), 3);
  assert_warnings(&lab.fixture, 0);
  ft_trust_unsign(lab.bundle);
  ck_assert_int_ne(access(lab.signature, F_OK), 0);
  ck_assert_int_eq(trust_lab_served(&lab, "owner"), 0);
  ck_assert_int_eq(trust_lab_served(&lab, "signed"), 0);
  assert_warnings(&lab.fixture, 2);
  ck_assert_int_eq(trust_lab_served(&lab, "any"), 3);
}
END_TEST

START_TEST(a_policy_mistyped_is_the_strictest) {
  ck_assert_int_eq(trust_lab_served(&lab, "ownr"), 3);
  assert_warnings(&lab.fixture, 1);
  ck_assert_ptr_nonnull(strstr(lab.fixture.warnings[0], "any, owner, signed"));
  ck_assert_int_eq(unlink(lab.signature), 0);
  ck_assert_int_eq(trust_lab_served(&lab, "ownr"), 0);
  ck_assert_int_eq(trust_lab_served(&lab, ""), 3); /* as if it were not set */
}
END_TEST

/* Layers say what they are trusted for. */
START_TEST(layers_tell_their_standing) {
  char id[FT_KEY_ID_HEX], expected[128];
  int count;
  ft_key_id_hex(lab.trusted.id, id);
  setenv("FATUNE_TRUST", "signed", 1);
  for (int round = 0; round < 2; round++) {
    struct ft_store *const store =
        open_store_with(&lab.fixture, (struct ft_store_options){.system_path = lab.layers});
    const struct ft_store_layer *const layers = ft_store_layers(store, &count);
    ck_assert_str_eq(ft_store_trust(store), "signed");
    ck_assert_int_eq(count, 1);
    ck_assert_str_eq(layers[0].path, lab.bundle);
    ck_assert_int_eq(layers[0].used, round == 0);
    snprintf(expected, sizeof expected,
             round == 0 ? "signed by %s: two kernels for sm_90" : "there is no signature", id);
    ck_assert_msg(strstr(layers[0].why, expected) != NULL, "%s", layers[0].why);
    ft_store_close(store);
    unlink(lab.signature);
  }
}
END_TEST

static int import(const char *policy) {
  char place[128];
  static int number;
  int64_t trials, kernels;
  snprintf(place, sizeof place, "%s/import%d", lab.fixture.root, number++);
  setenv("FATUNE_TRUST", policy, 1);
  struct ft_store *const store =
      open_store_with(&lab.fixture, (struct ft_store_options){.folder = place});
  const int status = ft_store_import(store, lab.bundle, &trials, &kernels);
  ck_assert_int_eq(trials + kernels, status == FT_OK ? 4 : 0);
  ft_store_close(store);
  return status;
}

/* Who names a file decides; but a signature that is not good is a warning nobody should miss. */
START_TEST(imports_ask_for_what_the_policy_says) {
  ck_assert_int_eq(chmod(lab.layers, 0777), 0);
  assert_ok(import("signed"));
  assert_ok(import("owner"));
  trust_lab_sign(&lab, &lab.stranger);
  assert_ok(import("owner"));
  assert_ok(import("any"));
  assert_status(import("signed"), FT_E_CACHE);
  memcpy(lab.stranger.id, lab.trusted.id, sizeof lab.trusted.id);
  trust_lab_sign(&lab, &lab.stranger);
  assert_status(import("owner"), FT_E_CACHE);
  assert_status(import("signed"), FT_E_CACHE);
  assert_ok(import("any"));
  ck_assert_int_eq(unlink(lab.signature), 0);
  assert_ok(import("owner"));
  assert_status(import("signed"), FT_E_CACHE);
}
END_TEST

/* What a signer writes goes to terminals. */
START_TEST(a_comment_commands_no_terminal) {
  struct ft_bundle_verdict verdict;
  assert_ok(ft_trust_sign(lab.bundle, &lab.trusted, "a\x1b[31m\x7f b\t"));
  struct ft_store *const store = open_store(&lab.fixture);
  assert_ok(ft_store_verify_bundle(store, lab.bundle, &verdict));
  ck_assert(verdict.is_signed);
  ck_assert_ptr_nonnull(strstr(verdict.how, ": a [31m  b "));
  assert_ok(ft_trust_sign(lab.bundle, &lab.trusted, ""));
  assert_ok(ft_store_verify_bundle(store, lab.bundle, &verdict));
  ck_assert_ptr_null(strchr(verdict.how, ':'));
  ft_store_close(store);
}
END_TEST

Suite *make_trust_suite(void) {
  Suite *const suite = suite_create("trust");
  TCase *const tests = tcase_create("trust");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, signatures_are_minisigns_to_the_letter);
  tcase_add_test(tests, a_bundle_signed_by_minisign_is_served);
  tcase_add_test(tests, passphrases_open_keys);
  tcase_add_test(tests, a_passphrase_takes_memory);
  tcase_add_loop_test(tests, what_is_no_key_is_refused, 0, (int)(sizeof no_keys / sizeof *no_keys));
  tcase_add_test(tests, a_comment_is_one_line_of_bounded_length);
  tcase_add_test(tests, keys_that_are_none_are_counted);
  tcase_add_test(tests, keys_of_other_kinds_are_refused_by_name);
  tcase_add_test(tests, a_signature_has_four_lines);
  tcase_add_test(tests, a_place_too_long_is_none);
  tcase_add_test(tests, places_are_named_without_links);
  tcase_add_test(tests, a_signature_makes_up_for_a_place);
  tcase_add_test(tests, a_policy_mistyped_is_the_strictest);
  tcase_add_test(tests, layers_tell_their_standing);
  tcase_add_test(tests, a_comment_commands_no_terminal);
  tcase_add_test(tests, imports_ask_for_what_the_policy_says);
  suite_add_tcase(suite, tests);
  return suite;
}
