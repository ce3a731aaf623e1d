# made_sources.cmake: C files that the build makes.
# in -> out: templates, device headers, sources of the generator -> lists <layer>_made for CMakeLists.txt.

# Files with these endings in a folder become an array of struct ft_template in <array>.c.
function(embed_files array header folder)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/${folder}/*" OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  list(JOIN ARGN "," endings)
  add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/${array}.c
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_SOURCE_DIR}/${folder} -DENDINGS=${endings}
            -DARRAY=${array} -DHEADER=${header} -DOUTPUT=${PROJECT_BINARY_DIR}/${array}.c
            -P ${PROJECT_SOURCE_DIR}/templates/embed.cmake
    DEPENDS ${files} templates/embed.cmake
    COMMENT "Embedding ${folder}" VERBATIM)
endfunction()
embed_files(ft_templates generator/templates.h templates .lua .cu.in)
embed_files(ft_report_files tuner/cli/report_files.h tuner/cli/report .html .css .js .txt)
embed_files(ft_emulator_files runtime/emulator/object.h runtime/emulator/device .h)

# Digests that need no computing at run time: a program of the build makes them from the same code.
file(GLOB generator_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/generator/*.[chd]*
     ${PROJECT_SOURCE_DIR}/generator/*/*.[chd]*)
list(FILTER generator_sources EXCLUDE REGEX "/generator/model/") # emission reads nothing of it
list(SORT generator_sources) # in the same order on every machine
add_executable(made_digests templates/made_digests.c ${PROJECT_BINARY_DIR}/ft_templates.c
  generator/template_files.c generator/digest.c generator/status.c generator/text.c)
target_link_libraries(made_digests PRIVATE fatune_flags dep::sodium)
add_custom_command(
  OUTPUT ${PROJECT_BINARY_DIR}/ft_made_digests.c
  COMMAND made_digests ${PROJECT_SOURCE_DIR}/generator/ ${generator_sources} > ${PROJECT_BINARY_DIR}/ft_made_digests.c
  DEPENDS made_digests ${generator_sources}
  COMMENT "Digests of templates and generator" VERBATIM)
set(generator_made ${PROJECT_BINARY_DIR}/ft_templates.c ${PROJECT_BINARY_DIR}/ft_made_digests.c)

# The trials that ship become a layer of the caches, inside the library.
function(make_shipped_layer)
  file(GLOB trials CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cache/shipped/*.trials)
  list(SORT trials)
  add_executable(made_shipped cache/shipped/made_shipped.c $<TARGET_OBJECTS:generator>
    $<TARGET_OBJECTS:cache>)
  target_link_libraries(made_shipped PRIVATE fatune_flags dep::lua dep::sqlite dep::sodium
    dep::jansson Threads::Threads)
  add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/ft_shipped.c
    COMMAND made_shipped ${PROJECT_BINARY_DIR}/shipped.fatune ${trials} > ${PROJECT_BINARY_DIR}/ft_shipped.c
    DEPENDS made_shipped ${trials}
    COMMENT "The layer of trials that ships" VERBATIM)
endfunction()
set(runtime_made ${PROJECT_BINARY_DIR}/ft_emulator_files.c ${PROJECT_BINARY_DIR}/ft_shipped.c)

# For generator/model/fit/fit.py, record.py and record_many.py, and bench/tune_quality.py. Tests read trials, too.
function(add_fit_programs)
  file(GLOB trials_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tuner/cli/fit/trials_*.c)
  add_library(fit_trials OBJECT ${trials_sources})
  target_link_libraries(fit_trials PRIVATE fatune_flags)
  file(GLOB many_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tuner/cli/fit/many_*.c)
  add_executable(dump_features tuner/cli/fit/dump_features.c $<TARGET_OBJECTS:fit_trials>)
  add_executable(record_many tuner/cli/fit/record_many.c ${many_sources} $<TARGET_OBJECTS:fit_trials>)
  target_link_libraries(dump_features PRIVATE fatune_flags fatune_static)
  target_link_libraries(record_many PRIVATE fatune_flags fatune_static)
endfunction()
