/* trees_of_file.h: a file of trees as tables.
 * in -> out: TREES_FILE, made by fit.py -> TREES_OF_questions, _asked, _scales and _leaves.
 *
 * The includer defines TREES_FILE, the path of the file, and TREES_OF, the beginning of the names
 * of its tables. This header undefines both, so that it can be included again for another file.
 * The file is read once for each table. So all leaves lie beside each other, which compresses
 * better than leaves between other numbers. */
#define TREES_PASTE(of, table)  of##table
#define TREES_EXPAND(of, table) TREES_PASTE(of, table)
#define TREES_TABLE(table)      TREES_EXPAND(TREES_OF, table)
#define EACH(...)                                                                                  \
  { __VA_ARGS__ }
#define NOTHING(...)

#define TREE                  NOTHING
#define QUESTION(name, above) {above, FT_FEATURE_##name},
static const struct ft_tree_question TREES_TABLE(_questions)[] = {
#include TREES_FILE
};
static_assert(FT_COUNT(TREES_TABLE(_questions)) <= FT_TREE_QUESTIONS_MOST, "answers have room");
#undef TREE
#undef QUESTION

#define QUESTION                   NOTHING
#define TREE(asked, scale, leaves) EACH asked,
static const ft_tree_asked TREES_TABLE(_asked)[] = {
#include TREES_FILE
};
#undef TREE
#define TREE(asked, scale, leaves) scale,
static const int16_t TREES_TABLE(_scales)[] = {
#include TREES_FILE
};
#undef TREE
#define TREE(asked, scale, leaves) EACH leaves,
static const ft_tree_leaves TREES_TABLE(_leaves)[] = {
#include TREES_FILE
};
#undef TREE
#undef QUESTION

#undef NOTHING
#undef EACH
#undef TREES_TABLE
#undef TREES_EXPAND
#undef TREES_PASTE
#undef TREES_FILE
#undef TREES_OF
