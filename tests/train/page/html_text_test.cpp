#include "train/page/html_text.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(HtmlText, MarkupStaysText) {
  EXPECT_EQ(html("<script>alert('1')</script> & \"q\""),
            "&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62; &#38; &#34;q&#34;");
}

TEST(HtmlText, WhatWouldMoveOrHideTextIsShown) {
  EXPECT_EQ(html("a\xe2\x80\xae"
                 "b\xe2\x81\xa6"),
            "a[U+202E]b[U+2066]");
  EXPECT_EQ(html(std::string("\0\x1b\x7f\xc2\x9b\n\t", 7)),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\n\t");
  EXPECT_EQ(html("\xff\xc3(\xc3\xa9"), "\xef\xbf\xbd\xef\xbf\xbd(\xc3\xa9");
}

TEST(HtmlText, LongTextsAreCutAtACharacter) {
  EXPECT_EQ(html("\xc3\xa9\xc3\xa9\xc3\xa9z", 2), "\xc3\xa9\xc3\xa9 \xe2\x80\xa6 (cut: 2 characters more)");
  EXPECT_EQ(html(std::string(1 << 20, '<'), 3),
            "&#60;&#60;&#60; \xe2\x80\xa6 (cut: 1048573 characters more)");
}

TEST(HtmlText, WordsOfTheReferenceInItsOrderAreMarked) {
  EXPECT_EQ(html_marked("The dog, sat on it", "the cat sat on  a mat.", 100),
            "<mark>The</mark> dog, <mark>sat on</mark> it");
  EXPECT_EQ(html_marked("b a", "a b", 100), "b <mark>a</mark>");
  // ROUGE compares stems, and only letters from a to z.
  EXPECT_EQ(html_marked("<i> & reported \xd0\xb4\xd0\xb0", "x reports \xd0\xb4\xd0\xb0", 100),
            "&#60;i&#62; &#38; <mark>reported</mark> \xd0\xb4\xd0\xb0");
  EXPECT_EQ(html_marked("", "a", 10), "");
  EXPECT_EQ(html_marked("a b c d", "c d", 3), "a b \xe2\x80\xa6 (cut: 4 characters more)");
}

}  // namespace
}  // namespace ripstop
