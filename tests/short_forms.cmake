# short_forms.cmake: of `make coverage` and `make tsan`, what `make check` has of them. in -> out: layers
# compiled once more -> fatune_tests_counted, whose suites say which branches of cache/ ran;
# fatune_tests_watched, which sees races in cache/ and runtime/; `counted`: the suites of the former.
set(counted)
if(FATUNE_SANITIZE OR FATUNE_COVERAGE)
  return()
endif()

function(add_tests_again name kind option)
  set(objects $<TARGET_OBJECTS:suites> $<TARGET_OBJECTS:cli> $<TARGET_OBJECTS:fit_trials>)
  foreach(layer generator cache runtime tuner)
    if(TARGET ${layer}_${kind})
      list(APPEND objects $<TARGET_OBJECTS:${layer}_${kind}>)
    else()
      list(APPEND objects $<TARGET_OBJECTS:${layer}>)
    endif()
  endforeach()
  add_executable(${name} ${objects})
  set_up_test(${name})
  lead_calls(${name})
  target_link_options(${name} PRIVATE LINKER:--wrap=_mark_point)
  add_dependencies(${name} fatune_tests)
  target_link_options(${name} PRIVATE ${option} LINKER:--as-needed)
  target_link_libraries(${name} PRIVATE dep::lua dep::sqlite dep::sodium dep::jansson Threads::Threads
    ${CMAKE_DL_LIBS} m)
endfunction()

# These suites run with cache/ counted and not a second time without.
set(counted bundle_forged bundle_recipes fields fuzz_corpus kernel_key key_parts merge named_files shipped single_flight store store_choose store_edges
    store_export store_failures store_faults store_files store_forged store_modes store_near store_old store_parts store_power store_repair
    store_rows trial_text trust)
set(counts ${PROJECT_BINARY_DIR}/CMakeFiles/cache_counted.dir)
add_tests_again(fatune_tests_counted counted --coverage)
add_check(counts_begin 20 find ${counts} -name *.gcda -delete)
set_tests_properties(counts_begin PROPERTIES FIXTURES_SETUP counts)
# Asked for alone, it brings the suites that it counts.
add_check(branches 60 ${PROJECT_SOURCE_DIR}/.ci/coverage ${counts} cache=99.8)
set_tests_properties(branches PROPERTIES FIXTURES_REQUIRED counted)

add_tests_again(fatune_tests_watched watched -fsanitize=thread)
add_check(races 300 fatune_tests_watched single_flight shared_plans session ahead)
set_tests_properties(races PROPERTIES ENVIRONMENT "${test_environment};TSAN_OPTIONS=halt_on_error=1")
