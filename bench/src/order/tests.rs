use super::*;

#[test]
fn takes_names_without_what_changes() {
    let profile = "fn=(1) _ZN10divvy_hook4face17h0123456789abcdefE.llvm.12\n\
                   cfn=(2) _RNvMs16_NtCs0_3std4pathNtB6_4Path6exists\n\
                   cfn=(3) _RNvXs0_NtCs0_4core3fmt5write.280\nfn=(2)\nfn=(4) memcmp'2\n\
                   fn=(5) 0x0000000000401000\nfn=(6) (below main)\n";
    let names = functions(profile);
    let expected = [
        "_RNvMs16_NtCs0_3std4pathNtB6_4Path6exists",
        "_RNvXs0_NtCs0_4core3fmt5write*",
        "_ZN10divvy_hook4face17h*",
        "memcmp",
    ];
    assert!(names.iter().map(String::as_str).eq(expected), "{names:?}");
}
