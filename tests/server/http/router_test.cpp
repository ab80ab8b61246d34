#include "server/http/router.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "server/http/error_body.h"

namespace espalier::server::http {
namespace {

Handler nothing() {
  return [](Exchange&) -> boost::asio::awaitable<void> { co_return; };
}

TEST(Router, FindsByMethodAndPath) {
  Router router;
  router.add("GET", "/v1/models", nothing());
  router.add("POST", "/v1/completions", nothing());
  EXPECT_NE(router.find("GET", "/v1/models").handler, nullptr);
  EXPECT_NE(router.find("HEAD", "/v1/models").handler, nullptr);
  EXPECT_EQ(router.find("GET", "/v1/models").pattern, "/v1/models");
}

TEST(Router, AnUnknownPathFitsNothing) {
  Router router;
  router.add("GET", "/v1/models", nothing());
  for (const char* path : {"/", "", "/v1", "/v1/model", "/v1/models/", "/v1/modelsx"}) {
    EXPECT_TRUE(router.find("GET", path).pattern.empty()) << path;
  }
}

TEST(Router, AWrongMethodNamesTheRightOnes) {
  Router router;
  router.add("GET", "/thing", nothing());
  router.add("DELETE", "/thing", nothing());
  const auto match = router.find("POST", "/thing");
  EXPECT_EQ(match.handler, nullptr);
  EXPECT_EQ(match.pattern, "/thing");
  EXPECT_EQ(match.allow, "GET, DELETE, OPTIONS");
}

TEST(Router, AStarTakesTheRest) {
  Router router;
  router.add("GET", "/v1/models/*", nothing());
  EXPECT_EQ(router.find("GET", "/v1/models/org/name").parameter, "org/name");
  EXPECT_TRUE(router.find("GET", "/v1/models/").pattern.empty());
}

TEST(DecodePath, RemovesHostAndQueryAndEscapes) {
  EXPECT_EQ(decode_path("/a/b"), "/a/b");
  EXPECT_EQ(decode_path("/a?x=/y#z"), "/a");
  EXPECT_EQ(decode_path("/org%2Fname%20x"), "/org/name x");
  EXPECT_EQ(decode_path("http://host:80/a?b"), "/a");
  EXPECT_EQ(decode_path("http://host"), "/");
}

TEST(DecodePath, RefusesBadEscapes) {
  for (const char* target : {"/%", "/%a", "/%zz", "/%4", "/a%2", "/a%00"}) {
    EXPECT_THROW(decode_path(target), base::RequestError) << target;
  }
}

TEST(ErrorBody, HasOpenAiShape) {
  EXPECT_EQ(error_body(400, "No.", "invalid_value", "n"),
            R"({"error":{"message":"No.","type":"invalid_request_error","param":"n",)"
            R"("code":"invalid_value"}})");
  EXPECT_EQ(error_body(500, "No.", "", ""),
            R"({"error":{"message":"No.","type":"server_error","param":null,"code":null}})");
}

TEST(ErrorBody, KeepsBytesThatAreNoText) {
  EXPECT_NE(error_body(404, "\xff", "", "").find("\xEF\xBF\xBD"), std::string::npos);
}

TEST(ErrorResponse, SaysWhenToTryAgain) {
  const Response busy = error_response(base::RequestError(429, "queue_full", "Busy."));
  ASSERT_EQ(busy.headers.size(), 1U);
  EXPECT_EQ(busy.headers[0].first, "Retry-After");
  EXPECT_TRUE(error_response(base::RequestError(400, "x", "No.")).headers.empty());
}

}  // namespace
}  // namespace espalier::server::http
