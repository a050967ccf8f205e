{
  "targets": [
    {
      "target_name": "stepccl_addon",
      "sources": [
        "src/addon.cpp",
        "src/frame.cpp",
        "src/model.cpp",
        "../src/core/names.cpp",
        "../src/model/alpha_beta.cpp",
        "../src/schedule/algorithms.cpp",
        "../src/schedule/all_to_all.cpp",
        "../src/schedule/binomial.cpp",
        "../src/schedule/builder.cpp",
        "../src/schedule/chain.cpp",
        "../src/schedule/costs.cpp",
        "../src/schedule/direct.cpp",
        "../src/schedule/group.cpp",
        "../src/schedule/halving_doubling.cpp",
        "../src/schedule/hierarchical.cpp",
        "../src/schedule/hierarchical_blocks.cpp",
        "../src/schedule/recursive_doubling.cpp",
        "../src/schedule/ring.cpp",
        "../src/schedule/tree.cpp",
        "../src/schedule/tracker.cpp"
      ],
      "include_dirs": ["<!(node -p \"require('node-addon-api').include_dir\")", "../include", "../src"],
      "defines": ["NAPI_VERSION=8", "NODE_ADDON_API_DISABLE_DEPRECATED"],
      "cflags_cc!": ["-std=gnu++17", "-fno-exceptions", "-fno-rtti"],
      "cflags_cc": ["-std=c++20", "-fexceptions", "-Wall", "-Wextra", "-fvisibility=hidden"],
      "conditions": [["target_arch=='x64'", { "cflags_cc": ["-march=x86-64-v2"] }]]
    }
  ]
}
