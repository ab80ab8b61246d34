# Outside libraries: Debian's, the MLX wheel, and our own Rust static library.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)

# Boost.Asio and Boost.Beast, headers alone; server/http/boost_implementation.cpp compiles them once.
find_package(Boost 1.81 REQUIRED)
add_library(espalier_boost INTERFACE)
target_link_libraries(espalier_boost INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(espalier_boost INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
                                                    BOOST_BEAST_SEPARATE_COMPILATION
                                                    BOOST_ASIO_NO_DEPRECATED)
add_library(espalier::boost ALIAS espalier_boost)

# Line editing for `espalier chat`.
find_path(EDIT_INCLUDE_DIR histedit.h REQUIRED)
find_library(EDIT_LIBRARY edit REQUIRED)
add_library(espalier_edit INTERFACE)
target_include_directories(espalier_edit SYSTEM INTERFACE ${EDIT_INCLUDE_DIR})
target_link_libraries(espalier_edit INTERFACE ${EDIT_LIBRARY})
add_library(espalier::edit ALIAS espalier_edit)

# The MLX wheel lies in a private virtual environment that ./dev makes.
set(ESPALIER_VENV "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "Virtual environment with the MLX wheel")
execute_process(COMMAND ${ESPALIER_VENV}/bin/python -m mlx --cmake-dir
                OUTPUT_VARIABLE mlx_root OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
find_package(MLX REQUIRED CONFIG PATHS ${mlx_root}/share/cmake/MLX ${mlx_root} NO_DEFAULT_PATH)
add_library(espalier_mlx INTERFACE)
target_link_libraries(espalier_mlx INTERFACE ${MLX_LIBRARIES})
target_include_directories(espalier_mlx SYSTEM INTERFACE ${MLX_INCLUDE_DIRS})
target_compile_options(espalier_mlx INTERFACE ${MLX_CXX_FLAGS})
add_library(espalier::mlx ALIAS espalier_mlx)

# The text library: tokenizers, templates and grammars (text/include/espalier_text.h).
find_program(CARGO_PROGRAM cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
# One target folder for all build folders: the crate is the same in each.
set(text_target ${CMAKE_SOURCE_DIR}/text/target)
set(text_library ${text_target}/release/libespalier_text.a)
file(GLOB_RECURSE text_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/text/src/*.rs)
add_custom_command(
  OUTPUT ${text_library}
  COMMAND ${CARGO_PROGRAM} build --release --locked --quiet
          --manifest-path ${CMAKE_SOURCE_DIR}/text/Cargo.toml
          --target-dir ${text_target}
  DEPENDS ${text_sources} ${CMAKE_SOURCE_DIR}/text/Cargo.toml ${CMAKE_SOURCE_DIR}/text/Cargo.lock
  COMMENT "Building the text library (Rust)"
  USES_TERMINAL)
add_custom_target(espalier_text_build DEPENDS ${text_library})
add_library(espalier_text INTERFACE)
add_dependencies(espalier_text espalier_text_build)
target_include_directories(espalier_text INTERFACE ${CMAKE_SOURCE_DIR}/text/include)
target_link_libraries(espalier_text INTERFACE ${text_library} gcc_s util rt Threads::Threads m
                                              ${CMAKE_DL_LIBS})
add_library(espalier::text ALIAS espalier_text)
