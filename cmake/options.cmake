# Compiler settings that every target shares.
add_library(espalier_options INTERFACE)
target_include_directories(espalier_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# No implicit fused multiply-add: results must not depend on which function the compiler fuses.
target_compile_options(espalier_options INTERFACE -Wall -Wextra -Werror -ffp-contract=off
                                                  -fno-math-errno)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC takes the types in a source's unnamed namespace for a header's.
  target_compile_options(espalier_options INTERFACE -Wno-subobject-linkage)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(ESPALIER_SANITIZE)
  # Left out are checks whose faults AddressSanitizer or a crash shows as well; they take half of
  # the kernels' compile time. The fuzzer's own counters cost the tests little and let both share one build.
  set(checks -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr,pointer-overflow)
  # Warnings are errors for the release's compiler and for clang-tidy; here they would only hide faults.
  target_compile_options(espalier_options INTERFACE ${checks} -fsanitize=fuzzer-no-link
                                                    -fno-sanitize-recover=undefined
                                                    -fno-omit-frame-pointer -Wno-error)
  target_link_options(espalier_options INTERFACE ${checks})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # What ccache needs to know of precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  ${CCACHE_PROGRAM})
endif()
