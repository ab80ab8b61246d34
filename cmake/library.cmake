# espalier_precompile(<target> <kind> <header>...): what most sources of such targets include,
# compiled once by the first of them: MLX's headers alone take as long as the rest of a small source.
# Sources for one instruction set have flags of their own and skip it.
function(espalier_precompile target kind)
  get_property(first GLOBAL PROPERTY espalier_precompiled_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY espalier_precompiled_${kind} ${target})
  endif()
  # Without this option GCC's preprocessor, and so ccache, would not see the precompiled header.
  # Clang's would be refused once a package update touches a header of the system.
  target_compile_options(
    ${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
                      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()

# espalier_library(<folder> [DEPENDS <folder or target>...]): one static library per source folder,
# named espalier_<folder> with slashes as underscores. Sources are the folder's own .cpp files; those
# whose name ends in an instruction set are compiled for it.
set(ESPALIER_AVX2_FLAGS -mavx2 -mfma -mf16c)
set(ESPALIER_AVX512_FLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16
                          -mavx512vbmi -mfma -mf16c)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 takes the undefined operands in its own headers for mistakes.
  list(APPEND ESPALIER_AVX512_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

function(espalier_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "RECURSE" "" "DEPENDS")
  string(REPLACE "/" "_" name "espalier_${folder}")
  if(arg_RECURSE)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  endif()
  if(NOT sources)
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(${name} STATIC ${sources})
    set(scope PUBLIC)
    if("espalier::mlx" IN_LIST arg_DEPENDS)
      espalier_precompile(${name} arrays <mlx/mlx.h>)
    endif()
    foreach(source IN LISTS sources)
      if(source MATCHES "_avx2\\.cpp$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ESPALIER_AVX2_FLAGS}"
                                                         SKIP_PRECOMPILE_HEADERS ON)
      elseif(source MATCHES "_avx512\\.cpp$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ESPALIER_AVX512_FLAGS}"
                                                         SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endif()
  target_link_libraries(${name} ${scope} espalier_options)
  foreach(dependency IN LISTS arg_DEPENDS)
    if(dependency MATCHES "::")
      target_link_libraries(${name} ${scope} ${dependency})
    else()
      string(REPLACE "/" "_" target "espalier_${dependency}")
      target_link_libraries(${name} ${scope} ${target})
    endif()
  endforeach()
endfunction()

# espalier_embed(<folder> <header> <name> <file>...): a header with the files' text, one after the
# other, as the constant espalier::<folder>::<name>: source that is compiled at run time.
function(espalier_embed folder header name)
  set(text "")
  foreach(source IN LISTS ARGN)
    file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${source} part)
    string(APPEND text "${part}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                                           ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
  set(generated ${CMAKE_BINARY_DIR}/generated)
  file(CONFIGURE OUTPUT ${generated}/${header} @ONLY CONTENT
       "#pragma once\n\nnamespace espalier::${folder} {\n\ninline constexpr char ${name}[] = R\"source(${text})source\";\n\n}  // namespace espalier::${folder}\n")
  target_include_directories(espalier_${folder} PRIVATE ${generated})
endfunction()

# espalier_tests(<folder>): one GoogleTest program per test folder, linked to the library of the same
# name and whatever it needs.
function(espalier_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name "${folder}_test")
  add_executable(${name} ${sources})
  add_dependencies(unit_tests ${name})
  string(REPLACE "/" "_" library "espalier_${folder}")
  target_link_libraries(${name} PRIVATE ${library} GTest::gtest GTest::gmock GTest::gtest_main)
  foreach(dependency IN LISTS arg_DEPENDS)
    string(REPLACE "/" "_" target "espalier_${dependency}")
    target_link_libraries(${name} PRIVATE ${target})
  endforeach()
  set(headers <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
  get_target_property(linked ${library} LINK_LIBRARIES)
  if("espalier::mlx" IN_LIST linked)
    espalier_precompile(${name} array_tests ${headers} <mlx/mlx.h>)
  else()
    espalier_precompile(${name} tests ${headers})
  endif()
  # Each has helpers of its own in its unnamed namespace.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  # Their time goes into what they test; -O3 would only take theirs to compile.
  target_compile_options(${name} PRIVATE -O1)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE ESPALIER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(ESPALIER_SANITIZE)
    # In one process: starting takes such a program longer than most tests.
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 1800 LABELS ${folder})
  else()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 600 LABELS ${folder})
  endif()
endfunction()
