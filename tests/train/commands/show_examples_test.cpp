#include "train/commands/show_examples.h"

#include <gtest/gtest.h>

#include "tests/data/small_tokenizer.h"

namespace ripstop {
namespace {

class ShownTokens : public testing::Test {
 protected:
  /// BOS, a document of `document`, "\n", a summary of `summary`, EOS.
  ExampleView view(const std::string& document, const std::string& summary) const {
    ExampleView view;
    view.token = tokenizer_.begin();
    const auto append = [&](const std::vector<int32_t>& ids) {
      view.token.insert(view.token.end(), ids.begin(), ids.end());
    };
    append(tokenizer_.encode(document));
    view.document = std::ssize(view.token);
    append({newline_});
    append(tokenizer_.encode(summary));
    append({tokenizer_.eos()});
    view.targets = {{view.document + 1, std::ssize(view.token)}};
    view.separator = 1;
    view.summary = view.target_count();
    return view;
  }
  const Tokenizer tokenizer_{small_model(), "small"};
  const int32_t newline_ = tokenizer_.encode("\n").back();
  const Terminal plain_, colored_{.is_terminal = true, .rewrites = true, .colors = true, .width = 80};
};

TEST_F(ShownTokens, LettersOfBytesAreWhole) {
  const std::vector<int32_t> ids = tokenizer_.encode("on \u6771\u4eac\n\nend");
  EXPECT_EQ(visible_tokens(ids, tokenizer_), " on \u6771\u4eac\n\nend");
  std::vector<int32_t> bytes;
  for (const int32_t id : ids)
    if (tokenizer_.piece(id).name.starts_with("<0x")) bytes.push_back(id);
  ASSERT_GE(bytes.size(), 6u);
  // Two of the three bytes of a letter, as beside a cut.
  EXPECT_EQ(visible_tokens({bytes[0], bytes[1]}, tokenizer_), "<0xE6><0x9D>");
  EXPECT_EQ(visible_tokens({bytes[0], bytes[1], bytes[2], bytes[3]}, tokenizer_), "\u6771<0xE4>");
}

TEST_F(ShownTokens, SpecialTokensHaveTheirNames) {
  EXPECT_EQ(visible_tokens({tokenizer_.begin().front(), 0, tokenizer_.eos()}, tokenizer_), "<s><unk></s>");
}

TEST_F(ShownTokens, WhatCountsIsMarked) {
  const ExampleView shown = view("The bridge", "closed");
  EXPECT_EQ(example_text(shown, tokenizer_, plain_), "<s> The bridge\n[[ closed</s>]]");
  EXPECT_EQ(example_text(shown, tokenizer_, colored_), "<s> The bridge\n\x1b[1;32m closed</s>\x1b[0m");
  ExampleView none = shown;
  none.targets = {};
  EXPECT_EQ(example_text(none, tokenizer_, plain_), "<s> The bridge\n closed</s>");
}

TEST_F(ShownTokens, PlacesOfCutsAreShown) {
  ExampleView shown = view("The bridge", "closed");
  shown.cuts = {{shown.document, 205}};
  EXPECT_EQ(example_text(shown, tokenizer_, plain_), "<s> The bridge<205 tokens cut>\n[[ closed</s>]]");
  EXPECT_EQ(example_text(shown, tokenizer_, colored_),
            "<s> The bridge\x1b[1;33m<205 tokens cut>\x1b[0m\n\x1b[1;32m closed</s>\x1b[0m");
  // Targets on both sides of the cut are marked on both sides.
  shown.targets = {{1, std::ssize(shown.token)}};
  shown.cuts.push_back({std::ssize(shown.token), 1});
  EXPECT_EQ(example_text(shown, tokenizer_, plain_),
            "<s>[[ The bridge]]<205 tokens cut>[[\n closed</s>]]<1 token cut>");
  shown.targets = {{1, 2}, {shown.cuts[0].at + 1, std::ssize(shown.token)}};
  shown.cuts = {{shown.cuts[0].at, 30, 2}};
  const std::string text = example_text(shown, tokenizer_, plain_);
  EXPECT_TRUE(text.starts_with("<s>[[" + visible_tokens({shown.token[1]}, tokenizer_) + "]]")) << text;
  EXPECT_TRUE(text.ends_with("<2 turns, 30 tokens cut>\n[[ closed</s>]]")) << text;
}

TEST_F(ShownTokens, ALineTellsTheParts) {
  ExampleView shown;
  shown.example = 17;
  shown.token.resize(256);
  shown.targets = {{232, 256}};
  shown.document = 431, shown.separator = 6, shown.summary = 24;
  EXPECT_EQ(example_line(shown, ""),
            "example 17  tokens: document 431, separator 6, summary 24; 24 in the loss");
  shown.cut_document = 205, shown.cut_summary = 1;
  EXPECT_EQ(
      example_line(shown, "a\x1b[2J\nb"),
      "example 17  id a\\x1b[2J b  tokens: document 431 (205 cut), separator 6, summary 24 (1 cut); 24 in "
      "the loss");
  ExampleView text;
  text.document = 257;
  text.token.resize(257);
  text.targets = {{1, 257}};
  text.piece = 1, text.pieces = 5;
  EXPECT_EQ(example_line(text, "x"), "example 0, piece 2 of 5  id x  tokens: 257; 256 in the loss");
  ExampleView chat;
  chat.document = 300, chat.cut_document = 120, chat.turns = 6;
  chat.cuts = {{10, 90, 3}, {20, 30, 0}};
  chat.targets = {{30, 40}, {50, 55}};
  EXPECT_EQ(example_line(chat, ""), "example 0  tokens: 300 (120 cut), turns 6 (3 cut); 15 in the loss");
}

}  // namespace
}  // namespace ripstop
