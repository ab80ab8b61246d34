// The compiled part of Boost.Asio and Boost.Beast: BOOST_ASIO_SEPARATE_COMPILATION and
// BOOST_BEAST_SEPARATE_COMPILATION keep it out of every other file.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
